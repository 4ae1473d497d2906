package kernel

import "testing"

// TestNoIDComesBack: no id of a rule that was deleted is given out again, in the same process or
// after a start. A start knows the rules in force and how many loads there were.
func TestNoIDComesBack(t *testing.T) {
	const kept = 1000
	given := map[uint32]bool{}
	s, loads, key := newIDs(), uint16(0), uint64(1)
	assign := func(keys []uint64) []uint32 {
		t.Helper()
		all, fresh, err := s.assign(keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range fresh {
			if given[id] {
				t.Fatalf("id %#x was given out before", id)
			}
			given[id] = true
		}
		s.take(keys, all)
		loads++
		return all
	}
	id := assign([]uint64{kept})[0]
	for range 20 {
		for range 5 {
			key++
			if all := assign([]uint64{key + kept, kept}); all[1] != id {
				t.Fatalf("a rule that stays has id %#x, before %#x", all[1], id)
			}
		}
		s = newIDs() // a start
		s.adopt(kept, id)
		s.skip(loads)
	}
}
