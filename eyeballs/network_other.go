//go:build !linux

package eyeballs

import (
	"net"
	"net/netip"
)

// source asks the kernel for the source address towards dst by connecting a UDP
// socket, which sends nothing. It returns an invalid address if there is no route.
func source(dst netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 53)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// families finds which families this host has. Which addresses are deprecated is
// not known here: rule 3 of RFC 6724 has no effect.
func (n *network) families(h *hash) {
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
			n.v4 = true
		} else {
			n.v6 = true
		}
		h.add(addr.AsSlice())
	}
}
