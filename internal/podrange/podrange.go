// Package podrange knows which networks no container can have addresses of. The node checks the
// ranges of its settings by it, and a cluster the pools that hosts get ranges of.
package podrange

import "net/netip"

// special holds what is not for one host: unspecified, loopback, link-local, multicast and
// broadcast, and IPv4 addresses in the form of IPv6.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("::/127"),
	netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// Special returns the first network with such addresses that overlaps a prefix.
func Special(p netip.Prefix) (overlaps netip.Prefix, ok bool) {
	for _, s := range special {
		if p.Overlaps(s) {
			return s, true
		}
	}
	return netip.Prefix{}, false
}
