package rule

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/program"
)

// fillAddresses fills the lookup tables of an address dimension. named are the IPv6 prefixes that
// the baked conditions of the dimension name: their borders are the only borders of IPv6 classes.
func fillAddresses(a *program.Addresses, c *classes, named []netip.Prefix) {
	fillRuns(a, c)
	fillPrefixes(a, c, named)
}

// fillRuns takes the part of the regions that is IPv4.
func fillRuns(a *program.Addresses, c *classes) {
	a.V4 = append(a.V4, program.AddressClass{Class: c.at(mapped.lo)})
	for _, r := range c.regions {
		if mapped.lo.compare(r.start) < 0 && r.start.compare(mapped.hi) <= 0 {
			start := uint32(r.start.lo - mapped.lo.lo)
			a.V4 = append(a.V4, program.AddressClass{Start: start, Class: r.class})
		}
	}
}

// fillPrefixes makes the longest-prefix table. A prefix has the class of those of its addresses
// that no longer prefix covers. It is left out if there are none, or if the prefix around it has
// the same class.
func fillPrefixes(a *program.Addresses, c *classes, named []netip.Prefix) {
	slices.SortFunc(named, netip.Prefix.Compare)
	named = slices.Compact(named)
	all := make([]span, len(named))
	for i, p := range named {
		all[i] = prefixSpan(p)
	}
	if own, ok := uncovered(allAddresses, all); ok {
		a.Default6 = c.at(own)
	}
	type open struct {
		end   key
		class uint32
	}
	around := []open{{allAddresses.hi, a.Default6}}
	for i, p := range named {
		for all[i].lo.compare(around[len(around)-1].end) > 0 {
			around = around[:len(around)-1]
		}
		outer := around[len(around)-1].class
		own, ok := uncovered(all[i], all[i+1:])
		if !ok {
			continue
		}
		class := c.at(own)
		if class != outer {
			a.V6 = append(a.V6, program.PrefixClass{Prefix: p, Class: class})
		}
		around = append(around, open{all[i].hi, class})
	}
}

// uncovered returns an IPv6 address of s that is in none of the spans inside s. They are in order
// of their start and may be nested.
func uncovered(s span, inside []span) (key, bool) {
	free := s.lo
	skip := func(x span) bool { // false at the end of s
		if x.lo.compare(free) <= 0 && free.compare(x.hi) <= 0 {
			if s.hi.compare(x.hi) <= 0 {
				return false
			}
			free = x.hi.next()
		}
		return true
	}
	for _, x := range inside {
		if !skip(mapped) || s.hi.compare(x.lo) < 0 || free.compare(x.lo) < 0 {
			break
		}
		if !skip(x) {
			return key{}, false
		}
	}
	return free, skip(mapped)
}
