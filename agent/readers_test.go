package agent

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/unixsocket"
)

// TestReadersOfAUser: one user has only so many connections, and others get theirs meanwhile. When
// one is closed, also twice, the user gets another one.
func TestReadersOfAUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	socket, err := unixsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l := newPerUser(socket, 2)
	defer l.Close()
	users := []int{1000, 1000, 1000, 1001, 1000} // of the connections, in turn
	uid := l.uid
	l.uid = func(c net.Conn) int {
		if has := uid(c); has != os.Getuid() {
			t.Errorf("user %d connected, this is %d", has, os.Getuid())
		}
		one := users[0]
		users = users[1:]
		return one
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	accept := func() net.Conn {
		t.Helper()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	third := dial()
	dial() // of another user
	accept()
	second := accept()
	accept()
	if n, err := third.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a third connection: %d bytes, %v", n, err)
	}
	second.Close()
	second.Close()
	dial()
	accept()
	if l.open[1000] != 2 || l.open[1001] != 1 {
		t.Errorf("open are %v", l.open)
	}
}

// TestReadSocketLimitsUsers: the read-only socket closes what one user opens beyond a quarter of
// the connections that it has.
func TestReadSocketLimitsUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := listenForReaders(path, func(error) {}) // there may be no group weir
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, readers)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if uid := api.ClientUID(withReader(t.Context(), c)); uid != os.Getuid() {
				t.Errorf("requests are those of user %d, this is %d", uid, os.Getuid())
			}
			accepted <- c
		}
	}()
	var last net.Conn
	for range readersOfUser + 1 {
		if last, err = net.Dial("unix", path); err != nil {
			t.Fatal(err)
		}
		defer last.Close()
	}
	if err := last.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection too many: %v", err)
	}
	l.Close()
	n := 0
	for c := range accepted {
		c.Close()
		n++
	}
	if n != readersOfUser {
		t.Errorf("%d connections of one user were accepted", n)
	}
}
