package rule

import (
	"fmt"
	"slices"
)

// limited is a rule that has a baked condition in a dimension: it can match only where the key is
// in spans.
type limited struct {
	slot  int
	spans spans
}

// region is a run of keys of one class: from start up to the next region.
type region struct {
	start key
	class uint32
}

// classes are the equivalence classes of one dimension: keys that lie in the same rules' sets are
// of one class.
type classes struct {
	regions []region // in order; the first starts at 0
	vectors []uint64 // words per class
	count   int
}

// maxVectorWords bounds the vectors of one dimension: 128 MiB, four times what the most rules with
// an address each need.
const maxVectorWords = 16 << 20

// edge is a key from which on a rule's bit is the other way round.
type edge struct {
	at   key
	slot int
}

// classify sweeps over the edges of all sets in order of their keys, and keeps the vector of the
// rules that hold there. A vector that was there before gives its class again: it is found by a
// hash that changes by one word per edge, then compared in full.
func classify(rules []limited, slots int, whole span) (classes, error) {
	words := (slots + 63) / 64
	vector := make([]uint64, words)
	for slot := range slots {
		vector[slot/64] |= 1 << (slot % 64)
	}
	n := 0
	for _, l := range rules {
		vector[l.slot/64] &^= 1 << (l.slot % 64)
		n += 2 * len(l.spans)
	}
	edges := make([]edge, 0, n)
	for _, l := range rules {
		for _, s := range l.spans {
			edges = append(edges, edge{s.lo, l.slot})
			if s.hi != whole.hi {
				edges = append(edges, edge{s.hi.next(), l.slot})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.at.compare(b.at) })

	vectors := countVectors(edges)
	if vectors > maxVectorWords/words {
		return classes{}, fmt.Errorf("%d rules tell %d sets of addresses apart, which takes %d "+
			"MiB; the most is %d MiB: put addresses into tables",
			slots, vectors, vectors*words*8>>20, maxVectorWords*8>>20)
	}
	c := classes{regions: make([]region, 0, len(edges)+1),
		vectors: make([]uint64, 0, words*vectors)}
	known := make(map[uint64][]uint32) // classes by hash of their vector
	hash := uint64(0)
	at := whole.lo
	for i := 0; ; {
		for ; i < len(edges) && edges[i].at == at; i++ {
			slot := edges[i].slot
			vector[slot/64] ^= 1 << (slot % 64)
			hash ^= scramble(uint64(slot))
		}
		class := c.find(known[hash], vector)
		if class == noClass {
			class = uint32(c.count)
			c.count++
			c.vectors = append(c.vectors, vector...)
			known[hash] = append(known[hash], class)
		}
		if last := len(c.regions) - 1; last < 0 || c.regions[last].class != class {
			c.regions = append(c.regions, region{at, class})
		}
		if i == len(edges) {
			return c, nil
		}
		at = edges[i].at
	}
}

// countVectors returns how many different vectors a sweep over edges meets, by their hashes: space
// for them is made at once, because they can be tens of megabytes.
func countVectors(edges []edge) int {
	seen := map[uint64]struct{}{0: {}}
	hash := uint64(0)
	for i, e := range edges {
		hash ^= scramble(uint64(e.slot))
		if i+1 == len(edges) || edges[i+1].at != e.at {
			seen[hash] = struct{}{}
		}
	}
	return len(seen)
}

// double makes space for n more, doubling what is full: append grows large slices by a quarter only
// and copies them too often.
func double[T any](s []T, n int) []T {
	if len(s)+n > cap(s) {
		return slices.Grow(s, max(len(s), n))
	}
	return s
}

const noClass = ^uint32(0)

func (c *classes) find(candidates []uint32, vector []uint64) uint32 {
	for _, class := range candidates {
		if slices.Equal(c.vectors[int(class)*len(vector):][:len(vector)], vector) {
			return class
		}
	}
	return noClass
}

// scramble spreads a number over 64 bits (the finalizer of SplitMix64).
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// at returns the class of a key.
func (c *classes) at(k key) uint32 {
	i, found := slices.BinarySearchFunc(c.regions, k, func(r region, k key) int {
		return r.start.compare(k)
	})
	if !found {
		i--
	}
	return c.regions[i].class
}

// index writes the class of every key of an indexed dimension. It fails when there are more classes
// than 16 bits can number.
func (c *classes) index(into []uint16) bool {
	if c.count > 1<<16 {
		return false
	}
	for i, r := range c.regions {
		end := uint64(len(into))
		if i+1 < len(c.regions) {
			end = c.regions[i+1].start.lo
		}
		for k := r.start.lo; k < end; k++ {
			into[k] = uint16(r.class)
		}
	}
	return true
}
