package overlay

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const icmpTooBig = 2 // of ICMPv6

// tellSize tells the kernel how large a packet over a hop may be, by the ICMPv6 message that a router should have sent: there is no other way to
// set the size of a single path. The kernel never makes it larger by this.
func (b *bind) tellSize(h *hop, size int) error {
	b.mu.RLock()
	v6 := b.v6
	b.mu.RUnlock()
	if v6 == nil {
		return os.ErrClosed
	}
	m := make([]byte, 8+headers6)
	m[0] = icmpTooBig // the kernel adds the checksum
	binary.BigEndian.PutUint32(m[4:], uint32(size))
	quoted := m[8:]
	quoted[0] = 6 << 4
	binary.BigEndian.PutUint16(quoted[4:], uint16(size-40))
	quoted[6], quoted[7] = unix.IPPROTO_UDP, 64
	local, remote := h.local.As16(), h.addr.Addr().As16()
	copy(quoted[8:], local[:])
	copy(quoted[24:], remote[:])
	binary.BigEndian.PutUint16(quoted[40:], v6.LocalAddrPort().Port())
	binary.BigEndian.PutUint16(quoted[42:], h.addr.Port())
	binary.BigEndian.PutUint16(quoted[44:], uint16(size-40))
	to := &unix.SockaddrInet6{Addr: local}
	if h.local.IsLinkLocalUnicast() {
		to.ZoneId = uint32(h.ifindex)
	}
	return b.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return fmt.Errorf("overlay: raw socket: %w", err)
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, m, 0, to); err != nil {
			return fmt.Errorf("overlay: tell the kernel a path's size: %w", err)
		}
		return nil
	})
}
