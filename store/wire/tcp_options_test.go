package wire

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestSetTCPOptions: the kernel has the bound, or says that it does not know it. What is not a
// socket is left alone.
func TestSetTCPOptions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := SetTCPOptions(conn); errors.Is(err, syscall.ENOPROTOOPT) {
		t.Logf("before Linux 6.15: %v", err)
	} else if err != nil {
		t.Error(err)
	} else {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			if got, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP,
				syscall.TCP_KEEPIDLE); err != nil || got != 2 {
				t.Errorf("it asks after %d s: %v", got, err)
			}
			if got, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP,
				tcpRTOMax); err != nil || got != rtoMax {
				t.Errorf("the bound is %d: %v", got, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	if err := SetTCPOptions(ours); err != nil {
		t.Error(err)
	}
}
