package unixsocket

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListenIsPrivateFromTheBeginning: with any umask, the socket has its mode when its name
// appears, and the mode does not change afterwards.
func TestListenIsPrivateFromTheBeginning(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sock")
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_ATTRIB); err != nil {
		t.Fatal(err)
	}
	defer unix.Umask(unix.Umask(0))
	for range 2 { // the second one replaces the first
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		defer l.Close()
		info, err := os.Stat(path)
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("the mode was changed after the socket was there: %d bytes, %v", n, err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestPeer: a listener knows the process that connected and its user, and of another kind of
// connection neither.
func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if pid, uid := Peer(accepted); pid != os.Getpid() || uid != os.Getuid() {
		t.Errorf("process %d of user %d connected, this is %d of %d", pid, uid, os.Getpid(),
			os.Getuid())
	}
	pipe, other := net.Pipe()
	defer pipe.Close()
	defer other.Close()
	if pid, uid := Peer(pipe); pid != 0 || uid != -1 {
		t.Errorf("a pipe is of process %d, user %d", pid, uid)
	}
}
