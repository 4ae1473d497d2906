package rule

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/program"
)

// fillAddresses fills the lookup tables of an address dimension. named are the IPv6 prefixes that
// the baked conditions of the dimension name: their borders are the only borders of IPv6 classes.
func fillAddresses(a *program.Addresses, c *classes, named []netip.Prefix) {
	d := dirBuilder{regions: c.regions}
	a.Root = make([]uint32, 1<<16)
	d.level(func() []uint32 { return a.Root }, 0, 16)
	a.Blocks = d.blocks
	fillPrefixes(a, c, named)
}

// dirBuilder makes the three-level table of IPv4. Addresses are passed in rising order, so at
// follows the regions.
type dirBuilder struct {
	regions []region
	at      int // region of the address passed last
	blocks  []uint32
}

// run returns the class of an address and how many addresses from it on are of this class.
func (d *dirBuilder) run(addr uint64) (class uint32, n uint64) {
	k := key{0, mapped.lo.lo + addr}
	for d.at+1 < len(d.regions) && d.regions[d.at+1].start.compare(k) <= 0 {
		d.at++
	}
	end := mapped.hi.lo + 1
	if d.at+1 < len(d.regions) {
		if next := d.regions[d.at+1].start; next.hi == 0 {
			end = min(end, next.lo)
		}
	}
	return d.regions[d.at].class, end - k.lo
}

// level fills a table whose entries stand for 2^bits addresses each, from base on: with a class, or
// with a block where an entry's addresses are of several classes. The table is looked up again
// after every block, because blocks move when they grow.
func (d *dirBuilder) level(table func() []uint32, base uint64, bits int) {
	n := len(table())
	for i := 0; i < n; {
		first := base + uint64(i)<<bits
		class, run := d.run(first)
		if whole := int(min(run>>bits, uint64(n-i))); whole > 0 {
			entries := table()[i : i+whole]
			for j := range entries {
				entries[j] = class
			}
			i += whole
			continue
		}
		number := len(d.blocks) / 256
		d.blocks = double(d.blocks, 256)[:len(d.blocks)+256]
		d.level(func() []uint32 { return d.blocks[number*256:][:256] }, first, bits-8)
		table()[i] = program.DirBlock | uint32(number)
		i++
	}
}

// fillPrefixes makes the longest-prefix table. A prefix has the class of those of its addresses
// that no longer prefix covers; it is left out if there are none, or if the prefix around it has
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
