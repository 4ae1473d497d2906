package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tcpPair returns the two ends of a connection.
func tcpPair(t *testing.T) (there, here net.Conn) {
	t.Helper()
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

// TestSpliceIdles: a deadline of a socket that passes ends a tunnel only if no data moved meanwhile
// in either direction.
func TestSpliceIdles(t *testing.T) {
	past := time.Now().Add(-time.Second)
	from, src := tcpPair(t)
	to, dst := tcpPair(t)
	src.SetReadDeadline(past)
	dst.SetWriteDeadline(past)
	ended := make(chan error, 1)
	go func() { ended <- (&tunnel{s: &Server{}, clock: newClock(time.Hour)}).move(dst, src) }()
	for _, word := range []string{"hello", "again"} {
		io.WriteString(from, word)
		got := make([]byte, len(word))
		if _, err := io.ReadFull(to, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
		src.SetReadDeadline(past)
	}
	from.Close()
	if err := <-ended; err != nil {
		t.Errorf("the end of a tunnel in use is %v", err)
	}
	_, src = tcpPair(t)
	src.SetReadDeadline(past)
	idle := newClock(time.Hour)
	idle.base = idle.base.Add(-2 * time.Hour)
	if err := (&tunnel{s: &Server{}, clock: idle}).move(dst, src); !isTimeout(err) {
		t.Errorf("the end of an idle tunnel is %v", err)
	}
}

// TestMoveWithoutDescriptors: a tunnel continues when the process has no descriptors left for a
// pipe.
func TestMoveWithoutDescriptors(t *testing.T) {
	from, src := tcpPair(t)
	to, dst := tcpPair(t)
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
