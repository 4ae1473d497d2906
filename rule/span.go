package rule

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// key is a value in a dimension of the classifier: an index, or an address as 16 bytes with IPv4 as
// ::ffff:a.b.c.d. (No packet has an IPv4-mapped IPv6 address: the decoder refuses it.)
type key struct{ hi, lo uint64 }

func (k key) compare(o key) int {
	if k.hi != o.hi {
		return cmp.Compare(k.hi, o.hi)
	}
	return cmp.Compare(k.lo, o.lo)
}

// next returns the key above k, wrapping at the end.
func (k key) next() key {
	k.lo++
	if k.lo == 0 {
		k.hi++
	}
	return k
}

// prev returns the key below k, wrapping at 0.
func (k key) prev() key {
	if k.lo == 0 {
		k.hi--
	}
	k.lo--
	return k
}

// span is a range of keys with both ends in it.
type span struct{ lo, hi key }

// spans is a set of keys: in order, disjoint and not touching.
type spans []span

var (
	allAddresses = span{key{}, key{^uint64(0), ^uint64(0)}}
	mapped       = span{key{0, 0xffff_0000_0000}, key{0, 0xffff_ffff_ffff}}
)

func indexSpan(lo, hi uint32) span { return span{key{0, uint64(lo)}, key{0, uint64(hi)}} }

func addrKey(a netip.Addr) key {
	b := a.As16()
	return key{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func prefixSpan(p netip.Prefix) span {
	lo, bits := addrKey(p.Masked().Addr()), p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	hi := lo
	if bits < 64 {
		hi.hi |= ^uint64(0) >> bits
		hi.lo = ^uint64(0)
	} else if bits < 128 {
		hi.lo |= ^uint64(0) >> (bits - 64)
	}
	return span{lo, hi}
}

// union brings spans in any order into the form of a set. It works in place.
func union(s spans) spans {
	slices.SortFunc(s, func(a, b span) int { return a.lo.compare(b.lo) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && (x.lo.compare(out[n-1].hi) <= 0 || x.lo == out[n-1].hi.next()) {
			if out[n-1].hi.compare(x.hi) < 0 {
				out[n-1].hi = x.hi
			}
			continue
		}
		out = append(out, x)
	}
	return out
}

// complement returns what whole has and s has not; s lies in whole.
func complement(s spans, whole span) spans {
	out := make(spans, 0, len(s)+1)
	from := whole.lo
	for _, x := range s {
		if from.compare(x.lo) < 0 {
			out = append(out, span{from, x.lo.prev()})
		}
		if x.hi == whole.hi {
			return out
		}
		from = x.hi.next()
	}
	return append(out, span{from, whole.hi})
}

// intersect returns what both have.
func intersect(a, b spans) spans {
	var out spans
	for i, j := 0, 0; i < len(a) && j < len(b); {
		lo, hi := a[i].lo, a[i].hi
		if lo.compare(b[j].lo) < 0 {
			lo = b[j].lo
		}
		if b[j].hi.compare(hi) < 0 {
			hi = b[j].hi
		}
		if lo.compare(hi) <= 0 {
			out = append(out, span{lo, hi})
		}
		if a[i].hi.compare(b[j].hi) < 0 {
			i++
		} else {
			j++
		}
	}
	return out
}

// prefixes returns the set of addresses in any of the prefixes. IPv6 prefixes never hold the IPv4
// addresses.
func prefixes(list []netip.Prefix) spans {
	out := make(spans, 0, len(list))
	for _, p := range list {
		s := prefixSpan(p)
		if p.Addr().Is4() || s.hi.compare(mapped.lo) < 0 || mapped.hi.compare(s.lo) < 0 {
			out = append(out, s)
			continue
		}
		if s.lo.compare(mapped.lo) < 0 {
			out = append(out, span{s.lo, mapped.lo.prev()})
		}
		if mapped.hi.compare(s.hi) < 0 {
			out = append(out, span{mapped.hi.next(), s.hi})
		}
	}
	return union(out)
}
