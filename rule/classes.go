package rule

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/internal/program"
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
	vectors program.Vectors
}

// maxVectorWords bounds the vectors of one dimension: 128 MiB, four times what the most rules with
// an address each need. A Program holds less, but engines write them out.
const maxVectorWords = 16 << 20

// edge is a key from which on a rule's bit is the other way round.
type edge struct {
	at   key
	slot uint32
}

// classify sweeps over the edges of all sets in order of their keys, and keeps the vector of the
// rules that hold there. A vector that was there before gives its class again: it is found by a
// hash that changes by one word per edge, then compared in full. What it takes beside the edges is
// linear in them. The regions are those of the workspace.
func (w *workspace) classify(slots int, whole span) (classes, error) {
	rules := w.limits
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
	edges := emptied(w.edges, n)
	for _, l := range rules {
		for _, s := range l.spans {
			edges = append(edges, edge{s.lo, uint32(l.slot)})
			if s.hi != whole.hi {
				edges = append(edges, edge{s.hi.next(), uint32(l.slot)})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.at.compare(b.at) })

	c := classes{regions: emptied(w.regions, len(edges)+1), vectors: program.NewVectors(words)}
	c.vectors.Reserve(places(edges)+1, len(edges))
	known := &w.known
	known.begin(&c.vectors, words, len(edges)/2)
	defer func() {
		w.edges, w.regions, known.vectors = edges, c.regions, nil
	}()
	hash := uint64(0)
	at := whole.lo
	var flips []uint32 // since the last class that was new
	for i := 0; ; {
		for ; i < len(edges) && edges[i].at == at; i++ {
			slot := edges[i].slot
			vector[slot/64] ^= 1 << (slot % 64)
			hash ^= scramble(uint64(slot))
			flips = append(flips, slot)
		}
		class, found := known.find(hash, vector)
		if !found {
			if c.vectors.Len() == maxVectorWords/words {
				return classes{}, fmt.Errorf("%d rules distinguish more than %d sets of "+
					"addresses, which take %d MiB, the maximum: put addresses into tables",
					slots, c.vectors.Len(), maxVectorWords*8>>20)
			}
			class = known.add(hash, vector, flips)
			flips = flips[:0]
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

// places returns how many different keys edges have that are in order.
func places(edges []edge) (n int) {
	for i := range edges {
		if i == 0 || edges[i].at != edges[i-1].at {
			n++
		}
	}
	return n
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
	if c.vectors.Len() > 1<<16 {
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
