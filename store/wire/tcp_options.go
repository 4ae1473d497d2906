package wire

import (
	"net"
	"syscall"
	"time"
)

// tcpRTOMax is TCP_RTO_MAX_MS: the longest time between two retransmissions (Linux 6.15).
const tcpRTOMax = 44

// rtoMax is the least that the kernel takes.
const rtoMax = 1000 // ms

// probing finds out within seconds that the other side of a connection is gone and could not say
// so. So a host that was cut off while weir-store ended hears of it after its return. It asks only
// while nothing arrives.
var probing = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second,
	Count: 13}

// SetTCPOptions prepares a connection between weir-store and a host. What was sent while the host
// was cut off arrives within a second of its return. Without these options TCP doubles its pauses,
// and a host that was away for ten seconds hears the news up to ten seconds late. A kernel before
// 6.15 refuses that, which SetTCPOptions reports; the connection works all the same.
func SetTCPOptions(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil // it is not a socket
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(probing); err != nil {
			return err
		}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		refused = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRTOMax, rtoMax)
	})
	if err != nil {
		return err
	}
	return refused
}
