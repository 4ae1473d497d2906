package soft

import (
	"iter"
	"slices"
)

// chunkSets is how many sets a visit of all states looks at before it lets the worker continue.
const chunkSets = 512

// visit goes over the states of a shard in chunks, between which packets come. It finds each state
// that is there all the time: states move from the half-open ones to the established ones, which
// come later, and within these not before the end (table.move).
type visit struct {
	table *table
	set   int // the first of the chunk
	// how many sets of half-open states were looked at
	halfOpen int
	// bit per entry of the established states: it was looked at as a half-open one; nil for none
	seen []uint64
}

// chunks yields the visit at each chunk. look looks at one.
func (s *shard) chunks() iter.Seq[*visit] {
	return func(yield func(*visit) bool) {
		v := &visit{}
		s.hold()
		s.visiting = append(s.visiting, v)
		s.release()
		defer s.endVisit(v)
		for _, t := range []*table{&s.halfOpen, &s.established} {
			for set := 0; set < len(t.tags); set += chunkSets {
				v.table, v.set = t, set
				if !yield(v) {
					return
				}
			}
		}
	}
}

func (s *shard) endVisit(v *visit) {
	s.hold()
	defer s.release()
	s.visiting = slices.DeleteFunc(s.visiting, func(one *visit) bool { return one == v })
}

// look calls f for the states of the chunk that the visit has not seen. f may remove its state. The
// caller holds the shard.
func (v *visit) look(s *shard, f func(ref)) {
	established := v.table == &s.established
	if !established {
		v.halfOpen = v.set + chunkSets
	}
	v.table.eachIn(v.set, v.set+chunkSets, func(r ref) {
		if !established || v.seen == nil || v.seen[r>>6]>>(r&63)&1 == 0 {
			f(r)
		}
	})
}

// established records that a half-open state has moved to the established ones.
func (v *visit) established(s *shard, from, to ref) {
	seen := int(from)/ways < v.halfOpen
	if v.seen == nil {
		if !seen {
			return
		}
		v.seen = make([]uint64, (len(s.established.entries)+63)/64)
	}
	if bit := uint64(1) << (to & 63); seen {
		v.seen[to>>6] |= bit
	} else { // another state may have been there before
		v.seen[to>>6] &^= bit
	}
}
