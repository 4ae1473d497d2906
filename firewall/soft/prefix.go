package soft

import (
	"math/bits"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// prefixes maps prefixes to numbers; the longest match wins. It is immutable: with and without
// return a new one that shares all but the changed path. So readers need no lock, and one change of
// a million costs some dozen nodes.
//
// IPv4 and IPv6 have a trie each: an IPv6 prefix never holds an IPv4 address.
type prefixes struct {
	v4, v6 *node
	n      int
}

// node is a prefix in a path-compressed binary trie. IPv4 prefixes are v4-mapped, 96 bits longer.
type node struct {
	hi, lo uint64
	bits   uint8 // 0..128
	has    bool  // is a member, not only a fork
	value  uint32
	child  [2]*node
}

// find returns the value of the longest prefix that holds the address.
func (t *prefixes) find(hi, lo uint64, v4 bool) (value uint32, ok bool) {
	n := t.v6
	if v4 {
		n = t.v4
	}
	for n != nil && n.holds(hi, lo) {
		if n.has {
			value, ok = n.value, true
		}
		if n.bits == 128 {
			break
		}
		n = n.child[bit(hi, lo, n.bits)]
	}
	return value, ok
}

// exact returns the value of a prefix.
func (t *prefixes) exact(p netip.Prefix) (uint32, bool) {
	hi, lo, length, v4 := words(p)
	n := t.v6
	if v4 {
		n = t.v4
	}
	for n != nil && n.bits <= length && n.holds(hi, lo) {
		if n.bits == length {
			return n.value, n.has
		}
		n = n.child[bit(hi, lo, n.bits)]
	}
	return 0, false
}

func (n *node) holds(hi, lo uint64) bool {
	return common(hi, lo, n.hi, n.lo) >= n.bits
}

// common returns how many leading bits two addresses share.
func common(ahi, alo, bhi, blo uint64) uint8 {
	if x := ahi ^ bhi; x != 0 {
		return uint8(bits.LeadingZeros64(x))
	}
	return uint8(64 + bits.LeadingZeros64(alo^blo))
}

// bit returns bit i of an address, 0 is the first.
func bit(hi, lo uint64, i uint8) uint64 {
	if i < 64 {
		return hi >> (63 - i) & 1
	}
	return lo >> (127 - i) & 1
}

// words returns a prefix as address words and length.
func words(p netip.Prefix) (hi, lo uint64, length uint8, v4 bool) {
	p = p.Masked()
	hi, lo = packet.AddrWords(p.Addr())
	length, v4 = uint8(p.Bits()), p.Addr().Is4()
	if v4 {
		length += 96
	}
	return hi, lo, length, v4
}

// with returns t with the prefix, whose value is replaced if it is there.
func (t *prefixes) with(p netip.Prefix, value uint32) *prefixes {
	c := *t
	c.set(p, value, false)
	return &c
}

// set adds to t itself, copying the nodes that it changes, unless own is true: then no other tree
// shares them.
func (t *prefixes) set(p netip.Prefix, value uint32, own bool) {
	hi, lo, length, v4 := words(p)
	root := &t.v6
	if v4 {
		root = &t.v4
	}
	added := false
	*root = (*root).set(hi, lo, length, value, own, &added)
	if added {
		t.n++
	}
}

func (n *node) set(hi, lo uint64, length uint8, value uint32, own bool, added *bool) *node {
	if n == nil {
		*added = true
		return &node{hi: hi, lo: lo, bits: length, has: true, value: value}
	}
	shared := min(common(hi, lo, n.hi, n.lo), n.bits, length)
	if shared == n.bits {
		c := n
		if !own {
			copied := *n
			c = &copied
		}
		if length == n.bits {
			*added = !n.has
			c.has, c.value = true, value
			return c
		}
		b := bit(hi, lo, n.bits)
		c.child[b] = n.child[b].set(hi, lo, length, value, own, added)
		return c
	}
	*added = true
	leaf := &node{hi: hi, lo: lo, bits: length, has: true, value: value}
	if shared == length {
		leaf.child[bit(n.hi, n.lo, length)] = n
		return leaf
	}
	fork := &node{bits: shared}
	fork.hi, fork.lo = keep(hi, lo, shared)
	fork.child[bit(hi, lo, shared)] = leaf
	fork.child[bit(n.hi, n.lo, shared)] = n
	return fork
}

// keep clears all but the first n bits.
func keep(hi, lo uint64, n uint8) (uint64, uint64) {
	if n < 64 {
		return hi &^ (^uint64(0) >> n), 0
	}
	return hi, lo &^ (^uint64(0) >> (n - 64))
}

// without returns t without the prefix, and whether it was there.
func (t *prefixes) without(p netip.Prefix) (*prefixes, bool) {
	hi, lo, length, v4 := words(p)
	c := *t
	root := &c.v6
	if v4 {
		root = &c.v4
	}
	n, ok := (*root).without(hi, lo, length)
	if !ok {
		return t, false
	}
	*root = n
	c.n--
	return &c, true
}

func (n *node) without(hi, lo uint64, length uint8) (*node, bool) {
	if n == nil || length < n.bits || !n.holds(hi, lo) {
		return n, false
	}
	c := *n
	if length == n.bits {
		if !n.has {
			return n, false
		}
		c.has, c.value = false, 0
		return c.prune(), true
	}
	b := bit(hi, lo, n.bits)
	child, ok := n.child[b].without(hi, lo, length)
	if !ok {
		return n, false
	}
	c.child[b] = child
	return c.prune(), true
}

// prune returns what is left of a node that may have become needless.
func (n *node) prune() *node {
	switch {
	case n.has || n.child[0] != nil && n.child[1] != nil:
		return n
	case n.child[0] != nil:
		return n.child[0]
	}
	return n.child[1]
}
