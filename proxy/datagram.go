package proxy

import (
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
		d.n, d.from, failed = header+n, addrPortOf(from), nil
		return true
	})
	if err == nil {
		err = failed
	}
	return d, err
}

// addrPortOf returns the source of a datagram. It is invalid if the kernel does not report one, as
// for a connected socket.
func addrPortOf(s unix.Sockaddr) netip.AddrPort {
	switch a := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
