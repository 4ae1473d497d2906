//go:build !linux

package eyeballs

import (
	"hash"
	"net"
	"net/netip"
)

// source asks the kernel for the source address towards dst: it connects a UDP socket, which sends
// nothing. It returns an invalid address if there is no route.
func source(dst netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 53)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// families finds which families this host has. It does not find which addresses are deprecated, so
// rule 3 of RFC 6724 has no effect.
func (v *hostView) families(h hash.Hash) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		addr, ok := netip.AddrFromSlice(ipnet.IP)
		if addr = addr.Unmap(); !ok || addr.IsLoopback() || addr.IsLinkLocalUnicast() ||
			addr.IsMulticast() {
			continue
		}
		if addr.Is4() {
			v.v4 = true
		} else {
			v.v6 = true
		}
		hashField(h, addr.AsSlice())
	}
}
