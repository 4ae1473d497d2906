package proxy

import (
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxHeader is more than the longest SOCKS5 header of a datagram, in bytes: 3 bytes, type, IPv6
// address, port.
const maxHeader = 32

// received is a datagram in a buffer of the pool. The receiver releases it.
type received struct {
	buf  [maxHeader + maxDatagram]byte
	n    int // bytes in use, from the first
	from netip.AddrPort
	zone uint32 // index of the interface of a link-local from, which has no zone; else 0
}

var receivedPool = sync.Pool{New: func() any { return new(received) }}

func (d *received) bytes() []byte { return d.buf[:d.n] }

func (d *received) release() { receivedPool.Put(d) }

// receive waits for a datagram and leaves header bytes before it. A waiting socket holds no buffer.
func receive(raw syscall.RawConn, header int) (d *received, err error) {
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		d = receivedPool.Get().(*received)
		n, from, err := unix.Recvfrom(int(fd), d.buf[header:], 0)
		for err == unix.EINTR {
			n, from, err = unix.Recvfrom(int(fd), d.buf[header:], 0)
		}
		if err != nil {
			d.release()
			d, failed = nil, err
			return err != unix.EAGAIN
		}
		d.n, failed = header+n, nil
		d.from, d.zone = addrPortOf(from)
		return true
	})
	if err == nil {
		err = failed
	}
	return d, err
}

// addrPortOf returns the source of a datagram, and the index of its interface if it is link-local.
// The source is invalid if the kernel does not report one, as for a connected socket.
func addrPortOf(s unix.Sockaddr) (from netip.AddrPort, zone uint32) {
	switch a := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), 0
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), a.ZoneId
	}
	return netip.AddrPort{}, 0
}

// sockaddrOf is the inverse of addrPortOf.
func sockaddrOf(to netip.AddrPort, zone uint32) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(to.Port()), ZoneId: zone, Addr: to.Addr().As16()}
}

// send sends a datagram. Package net would look up the name of a zone, which may have changed.
func send(raw syscall.RawConn, b []byte, to unix.Sockaddr) error {
	var failed error
	err := raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, to)
		for failed == unix.EINTR {
			failed = unix.Sendto(int(fd), b, 0, to)
		}
		return failed != unix.EAGAIN
	})
	if err == nil {
		err = failed
	}
	return err
}

// zoneOf returns the index of the interface of a link-local client, and 0 for others.
func zoneOf(conn net.Conn) (zone uint32) {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if peer, err := unix.Getpeername(int(fd)); err == nil {
			_, zone = addrPortOf(peer)
		}
	})
	return zone
}
