package kernel

import (
	"fmt"

	"github.com/weirnet/weir/internal/program"
)

// maxIDs is the number of rule indexes: twice program.MaxRules, so that a Program can replace
// another one with no rule in common.
const maxIDs = 2 * program.MaxRules

// ids gives rules and pipes stable ids by their keys: index | incarnation<<16. The index is the
// place of the rule's counters, and of the bucket. The incarnation separates the states of an
// earlier owner of the index from those of the current one.
type ids struct {
	byKey       map[uint64]uint32
	incarnation [maxIDs]uint16 // the last one used
	used        [maxIDs]bool
	next        int
}

func newIDs() *ids { return &ids{byKey: map[uint64]uint32{}} }

// adopt records an id that is in use already.
func (s *ids) adopt(key uint64, id uint32) {
	index := id & 0xffff
	if index >= maxIDs {
		return
	}
	s.byKey[key] = id
	s.used[index] = true
	s.incarnation[index] = uint16(id >> 16)
}

// skip skips the ids that earlier processes may have given out in so many loads: states and buckets
// of rules that are gone may still have them. A load raises the incarnation of an index by one at
// most.
func (s *ids) skip(loads uint16) {
	for index := range s.incarnation {
		if !s.used[index] {
			s.incarnation[index] = loads
		}
	}
}

// owners returns the keys of what has ids in a Program: its rules, then its pipes.
func owners(p *program.Program) []uint64 {
	keys := make([]uint64, 0, len(p.Rules)+len(p.Pipes))
	for i := range p.Rules {
		keys = append(keys, p.Rules[i].Key)
	}
	for i := range p.Pipes {
		keys = append(keys, p.Pipes[i].Key)
	}
	return keys
}

// assign returns the ids of owners, and those that are new. take puts them into use.
func (s *ids) assign(keys []uint64) (all, fresh []uint32, err error) {
	all = make([]uint32, len(keys))
	index := s.next
	for i, key := range keys {
		if id, ok := s.byKey[key]; ok {
			all[i] = id
			continue
		}
		for tried := 0; s.used[index]; tried++ {
			if tried == maxIDs {
				return nil, nil, fmt.Errorf("more than %d rules and pipes at once: delete some "+
					"before adding others", maxIDs)
			}
			index = (index + 1) % maxIDs
		}
		incarnation := s.incarnation[index] + 1
		if incarnation == 0 {
			incarnation = 1
		}
		all[i] = uint32(incarnation)<<16 | uint32(index)
		fresh = append(fresh, all[i])
		index = (index + 1) % maxIDs
	}
	return all, fresh, nil
}

// lack reports whether some rules have no id any more.
func (s *ids) lack(rules []weirCode) bool {
	for i := range rules {
		if s.byKey[rules[i].Key] != rules[i].Id {
			return true
		}
	}
	return false
}

// take makes the ids of owners the ones in use, and frees all others.
func (s *ids) take(keys []uint64, all []uint32) {
	s.byKey = make(map[uint64]uint32, len(keys))
	clear(s.used[:])
	for i, key := range keys {
		s.adopt(key, all[i])
	}
	if len(all) > 0 {
		s.next = (int(all[len(all)-1]&0xffff) + 1) % maxIDs
	}
}
