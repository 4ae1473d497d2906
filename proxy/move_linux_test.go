package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMoveWithoutDescriptors: a tunnel continues when the process has no descriptors left for a
// pipe.
func TestMoveWithoutDescriptors(t *testing.T) {
	pair := func() (there, here net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if there, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if here, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { there.Close(); here.Close() })
		return there, here
	}
	from, src := pair()
	to, dst := pair()
	io.WriteString(from, "hello")
	from.(*net.TCPConn).CloseWrite()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	for len(pipes) > 0 {
		(<-pipes).close()
	}
	deadline := time.Now().Add(30 * time.Second)
	src.SetReadDeadline(deadline)
	dst.SetWriteDeadline(deadline)
	if err := (&tunnel{s: &Server{}, clock: newClock(time.Minute)}).move(dst, src); err != nil {
		t.Error(err)
	}
	dst.Close()
	to.SetReadDeadline(deadline)
	if got, err := io.ReadAll(to); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
