package proxy

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// watch calls gone if the peer of conn hangs up, or conn is closed. It leaves the peer's data
// unread. Once there is some, watch no longer notices that the peer hangs up, which only costs
// time. stop ends the watch and waits for it.
func watch(conn net.Conn, gone context.CancelFunc) (stop func()) {
	raw, ok := rawConn(conn)
	if !ok {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := raw.Read(func(fd uintptr) bool {
			var b [1]byte
			n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if err == unix.EAGAIN || err == unix.EINTR {
				return false
			}
			if err != nil || n == 0 {
				gone()
			}
			return true
		})
		if err != nil && !isTimeout(err) {
			gone()
		}
	}()
	return func() {
		conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		conn.SetReadDeadline(time.Time{})
	}
}
