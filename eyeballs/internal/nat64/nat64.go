// Package nat64 converts addresses between IPv4 and the IPv6 form that a NAT64 translates. RFC 6052
// has the formats, RFC 7050 the discovery of the prefix, and RFC 6147 what must never be
// synthesised. It does no I/O.
package nat64

import (
	"net/netip"
	"slices"
)

// Name is the name whose AAAA records contain the prefix (RFC 7050).
const Name = "ipv4only.arpa"

// WellKnown are the two IPv4 addresses of Name.
var WellKnown = [2]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 0, 170}),
	netip.AddrFrom4([4]byte{192, 0, 0, 171})}

// WellKnownPrefix is the prefix of RFC 6052 section 2.1.
var WellKnownPrefix = netip.MustParsePrefix("64:ff9b::/96")

// lengths are the prefix lengths that RFC 6052 section 2.2 allows.
var lengths = [...]int{96, 64, 56, 48, 40, 32}

// embed writes v4 after the first bits of b. It skips byte 8, which RFC 6052 keeps zero.
func embed(b *[16]byte, bits int, v4 [4]byte) {
	at := bits / 8
	for _, octet := range v4 {
		if at == 8 {
			at++
		}
		b[at] = octet
		at++
	}
}

func extract(b [16]byte, bits int) (v4 [4]byte) {
	at := bits / 8
	for i := range v4 {
		if at == 8 {
			at++
		}
		v4[i] = b[at]
		at++
	}
	return v4
}

// Valid reports whether p is an IPv6 prefix of a length that RFC 6052 allows.
func Valid(p netip.Prefix) bool {
	return p.IsValid() && p.Addr().Is6() && !p.Addr().Is4In6() &&
		slices.Contains(lengths[:], p.Bits())
}

// Synthesizable reports whether v4 may be sent through a NAT64. 0/8, 127/8,
// 169.254/16, multicast and the limited broadcast address may not.
func Synthesizable(v4 netip.Addr) bool {
	v4 = v4.Unmap()
	if !v4.Is4() {
		return false
	}
	b := v4.As4()
	switch {
	case b[0] == 0, b[0] == 127, b[0] >= 224 && b[0] < 240:
		return false
	case b[0] == 169 && b[1] == 254:
		return false
	case b == [4]byte{255, 255, 255, 255}:
		return false
	}
	return true
}

// Synthesize returns v4 under the prefix p. It returns false if p is not a NAT64 prefix or v4 must
// not be synthesised.
func Synthesize(p netip.Prefix, v4 netip.Addr) (netip.Addr, bool) {
	if !Valid(p) || !Synthesizable(v4) {
		return netip.Addr{}, false
	}
	b := p.Masked().Addr().As16()
	embed(&b, p.Bits(), v4.Unmap().As4())
	return netip.AddrFrom16(b), true
}

// Extract returns the IPv4 address that v6 stands for under the prefix p.
func Extract(p netip.Prefix, v6 netip.Addr) (netip.Addr, bool) {
	if !Valid(p) || !v6.Is6() || !p.Contains(v6) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4(extract(v6.As16(), p.Bits())), true
}

// maxPrefixes bounds the prefixes of a network: each gives every IPv4 address another one to try.
const maxPrefixes = 8

// Prefixes finds the prefixes in the AAAA records of Name. If a well-known address is at several
// positions of an answer, the longest prefix counts. An answer without one is ignored, and so are
// prefixes after the first maxPrefixes.
func Prefixes(answers []netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	for _, a := range answers {
		if len(found) == maxPrefixes {
			break
		}
		if !a.Is6() || a.Is4In6() {
			continue
		}
		for _, bits := range lengths {
			v4 := netip.AddrFrom4(extract(a.As16(), bits))
			if !slices.Contains(WellKnown[:], v4) {
				continue
			}
			p := netip.PrefixFrom(a.WithZone(""), bits).Masked()
			if !slices.Contains(found, p) {
				found = append(found, p)
			}
			break
		}
	}
	return found
}
