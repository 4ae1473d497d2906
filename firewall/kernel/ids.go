package kernel

import (
	"fmt"

	"github.com/weirnet/weir/internal/program"
)

// maxIDs is the number of rule indexes: twice program.MaxRules, so that a Program can replace
// another one with no rule in common.
const maxIDs = 2 * program.MaxRules

// ids gives rules stable ids by their Rule.Key: index | incarnation<<16. The index is the place of
// the rule's counters. The incarnation separates the states of an earlier owner of the index from
// those of the current one.
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

// assign returns the ids of a Program's rules, and those that are new. take puts them into use.
func (s *ids) assign(rules []program.Rule) (all, fresh []uint32, err error) {
	all = make([]uint32, len(rules))
	index := s.next
	for slot := range rules {
		if id, ok := s.byKey[rules[slot].Key]; ok {
			all[slot] = id
			continue
		}
		for tried := 0; s.used[index]; tried++ {
			if tried == maxIDs {
				return nil, nil, fmt.Errorf("more than %d rules at once: delete some before "+
					"adding others", maxIDs)
			}
			index = (index + 1) % maxIDs
		}
		incarnation := s.incarnation[index] + 1
		if incarnation == 0 {
			incarnation = 1
		}
		all[slot] = uint32(incarnation)<<16 | uint32(index)
		fresh = append(fresh, all[slot])
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

// take makes the ids of a Program the ones in use, and frees all others.
func (s *ids) take(rules []program.Rule, all []uint32) {
	s.byKey = make(map[uint64]uint32, len(rules))
	clear(s.used[:])
	for slot := range rules {
		s.adopt(rules[slot].Key, all[slot])
	}
	if len(all) > 0 {
		s.next = (int(all[len(all)-1]&0xffff) + 1) % maxIDs
	}
}
