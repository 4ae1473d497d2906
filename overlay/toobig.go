package overlay

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const icmpTooBig = 2 // of ICMPv6

// sendTooBig sets the kernel's path MTU to size, by the ICMPv6 message Packet Too Big that a router
// should have sent. There is no other interface for the MTU of a single path. The kernel never
// raises it by this.
func (b *bind) sendTooBig(h *path, size int) error {
	if size < MinMTU || size > 65535 {
		return fmt.Errorf("overlay: %d is not a path MTU", size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.v6 == nil {
		return os.ErrClosed
	}
	if b.icmp6 == nil {
		if err := b.ns.Do(b.openICMPLocked); err != nil {
			return fmt.Errorf("overlay: raw socket: %w", err)
		}
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
	binary.BigEndian.PutUint16(quoted[40:], b.v6.LocalAddrPort().Port())
	binary.BigEndian.PutUint16(quoted[42:], h.addr.Port())
	binary.BigEndian.PutUint16(quoted[44:], uint16(size-40))
	to := &unix.SockaddrInet6{Addr: local}
	if h.local.IsLinkLocalUnicast() {
		to.ZoneId = uint32(h.ifindex)
	}
	if err := unix.Sendto(int(b.icmp6.Fd()), m, 0, to); err != nil {
		return fmt.Errorf("overlay: set a path MTU: %w", err)
	}
	return nil
}

// openICMPLocked opens the socket for sendTooBig. It receives nothing.
func (b *bind) openICMPLocked() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	var none unix.ICMPv6Filter
	for i := range none.Data {
		none.Data[i] = ^uint32(0)
	}
	if err := unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER,
		&none); err != nil {
		unix.Close(fd)
		return err
	}
	b.icmp6 = os.NewFile(uintptr(fd), "icmp6")
	return nil
}
