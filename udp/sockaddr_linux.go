package udp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// putName writes a as the socket address of a socket of the given family and returns its length; 0
// when the socket cannot send to it.
func putName(name *unix.RawSockaddrInet6, a netip.AddrPort, f family, z *zones) uint32 {
	ip := a.Addr()
	is4 := ip.Is4() || ip.Is4In6()
	switch {
	case !ip.IsValid(), is4 && f == familyV6, !is4 && f == familyV4:
		return 0
	case f == familyV4:
		n4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		n4.Family = unix.AF_INET
		putPort(&n4.Port, a.Port())
		n4.Addr = ip.Unmap().As4()
		return unix.SizeofSockaddrInet4
	}
	name.Family = unix.AF_INET6
	putPort(&name.Port, a.Port())
	name.Flowinfo = 0
	name.Addr = ip.As16() // an IPv4 address becomes a mapped one
	name.Scope_id = 0
	if ip.Is6() && ip.Zone() != "" {
		name.Scope_id = uint32(z.index(ip.Zone()))
	}
	return unix.SizeofSockaddrInet6
}

// getName reads a socket address of size bytes as the kernel wrote it.
func getName(name *unix.RawSockaddrInet6, size uint32, z *zones) netip.AddrPort {
	switch {
	case size >= unix.SizeofSockaddrInet4 && name.Family == unix.AF_INET:
		n4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(n4.Addr), getPort(&n4.Port))
	case size >= unix.SizeofSockaddrInet6 && name.Family == unix.AF_INET6:
		ip := netip.AddrFrom16(name.Addr).Unmap()
		if name.Scope_id != 0 && ip.Is6() {
			ip = ip.WithZone(z.name(int(name.Scope_id)))
		}
		return netip.AddrPortFrom(ip, getPort(&name.Port))
	}
	return netip.AddrPort{}
}

// putPort writes a port in network byte order.
func putPort(p *uint16, port uint16) {
	b := (*[2]byte)(unsafe.Pointer(p))
	b[0], b[1] = byte(port>>8), byte(port)
}

func getPort(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}
