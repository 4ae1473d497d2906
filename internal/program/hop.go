package program

import "net/netip"

// ValidNextHop reports whether packets can be forwarded to an address: one of a single host, and
// not a link-local one of IPv6, which means nothing without its interface.
func ValidNextHop(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && !(a.Is6() && a.IsLinkLocalUnicast())
}
