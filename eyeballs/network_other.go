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

// deprecated is not known here: rule 3 of RFC 6724 has no effect.
func deprecated() map[netip.Addr]bool { return nil }
