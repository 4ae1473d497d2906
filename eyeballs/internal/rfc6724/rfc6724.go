// Package rfc6724 puts destination addresses in the order of RFC 6724 section 6, across families,
// with the round-trip times that RFC 8305 section 4 adds between rules 8 and 9. It is pure: the
// caller finds the source addresses.
//
// Rules 1, 2, 3, 5, 6, 8 and 9 are here; 10 (leave the order) is the stable sort. Rule 4 (home
// addresses) needs Mobile IPv6, which Linux dropped. Rule 7 (native transport) needs to know which
// interfaces are tunnels, and an address does not show that. The policy table is the default one of
// section 2.1.
package rfc6724

import (
	"cmp"
	"math"
	"math/bits"
	"net/netip"
	"time"
)

// Candidate is a destination with what is known about its path.
type Candidate struct {
	Dst netip.Addr
	// Src is the source address that the kernel would use, invalid if there is no route.
	Src netip.Addr
	// Unusable means that Dst is known not to answer (rule 1).
	Unusable bool
	// Deprecated means that Src is a deprecated address (rule 3).
	Deprecated bool
	// RTT is the round-trip time of earlier connections to Dst, 0 if it is unknown. Between rules 8
	// and 9 a shorter one comes first, and an address that was used before one that was not (RFC
	// 8305 section 4).
	RTT time.Duration
}

// Key holds what the rules compare. Every rule compares one property of each side, so a key is
// computed once per candidate.
type Key struct {
	rules  [7]int8 // rules 1 (two), 2, 3, 5, 6 and 8, smaller first
	rtt    time.Duration
	prefix int8 // rule 9, longer first
	v4     bool
}

// unknownRTT sorts after every round-trip time.
const unknownRTT = time.Duration(math.MaxInt64)

// KeyOf returns the key of c.
func KeyOf(c Candidate) Key {
	dst, src := c.Dst.Unmap(), c.Src.Unmap()
	policy := classify(dst)
	k := Key{rtt: unknownRTT, v4: dst.Is4()}
	if c.RTT > 0 {
		k.rtt = c.RTT
	}
	k.rules[0] = not(src.IsValid())
	k.rules[1] = not(!c.Unusable)
	if src.IsValid() {
		k.rules[2] = not(scope(dst) == scope(src))
		k.rules[3] = not(!c.Deprecated)
		k.rules[4] = not(policy.label == classify(src).label)
		if !k.v4 {
			k.prefix = commonPrefix(dst, src)
		}
	}
	k.rules[5] = -policy.precedence
	k.rules[6] = scope(dst)
	return k
}

// Compare orders keys, the most preferred first.
func (k *Key) Compare(o *Key) int {
	for i := range k.rules {
		if d := cmp.Compare(k.rules[i], o.rules[i]); d != 0 {
			return d
		}
	}
	if d := cmp.Compare(k.rtt, o.rtt); d != 0 {
		return d
	}
	// Rule 9 does not apply to IPv4: it would defeat the rotation that DNS servers do
	// (golang.org/issue/13283).
	if k.v4 || o.v4 {
		return 0
	}
	return cmp.Compare(o.prefix, k.prefix)
}

func not(good bool) int8 {
	if good {
		return 0
	}
	return 1
}

type policy struct {
	prefix            netip.Prefix
	precedence, label int8
}

// table is the policy table of section 2.1, the longest prefixes first.
var table = [...]policy{
	{netip.MustParsePrefix("::1/128"), 50, 0},
	{netip.MustParsePrefix("::ffff:0:0/96"), 35, 4},
	{netip.MustParsePrefix("::/96"), 1, 3},
	{netip.MustParsePrefix("2001::/32"), 5, 5},
	{netip.MustParsePrefix("2002::/16"), 30, 2},
	{netip.MustParsePrefix("3ffe::/16"), 1, 12},
	{netip.MustParsePrefix("fec0::/10"), 1, 11},
	{netip.MustParsePrefix("fc00::/7"), 3, 13},
	{netip.MustParsePrefix("::/0"), 40, 1},
}

func classify(a netip.Addr) policy {
	if a.Is4() {
		return table[1]
	}
	a = a.WithZone("")
	for _, p := range table {
		if p.prefix.Contains(a) {
			return p
		}
	}
	return policy{}
}

// Scopes of section 3.1.
const (
	scopeLink   = 0x2
	scopeSite   = 0x5
	scopeGlobal = 0xe
)

// siteLocal is deprecated (RFC 3879) but still has its scope.
var siteLocal = netip.MustParsePrefix("fec0::/10")

func scope(a netip.Addr) int8 {
	switch {
	case a.IsLoopback() || a.IsLinkLocalUnicast():
		return scopeLink
	case a.Is6() && a.IsMulticast():
		return int8(a.As16()[1] & 0xf)
	case a.Is6() && siteLocal.Contains(a.WithZone("")):
		return scopeSite
	}
	return scopeGlobal
}

// commonPrefix is the number of leading bits that dst and src share, up to 64: the interface id is
// not compared (section 2.2).
func commonPrefix(dst, src netip.Addr) int8 {
	if dst.Is4() || src.Is4() {
		return 0
	}
	d, s := dst.As16(), src.As16()
	for i := range 8 {
		if x := d[i] ^ s[i]; x != 0 {
			return int8(i*8 + bits.LeadingZeros8(x))
		}
	}
	return 64
}
