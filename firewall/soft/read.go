package soft

import (
	"iter"

	"github.com/weirnet/weir/firewall"
)

// Rules returns the counters of the rules by slot.
func (e *Engine) Rules() ([]firewall.RuleCounter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]firewall.RuleCounter, len(e.cfg.rules))
	for i := range all {
		all[i].Key, all[i].Number = e.cfg.rules[i].Key, e.cfg.rules[i].Number
	}
	for _, s := range e.shards {
		s.hold()
		for i := range s.rules {
			all[i].Packets += s.rules[i].packets
			all[i].Bytes += s.rules[i].bytes
			all[i].Last = max(all[i].Last, s.rules[i].last)
		}
		s.release()
	}
	return all, nil
}

// Zero sets the counters of the rules with a number to 0, of all rules for number 0.
func (e *Engine) Zero(number uint16) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.shards {
		s.hold()
		for i := range s.rules {
			if number == 0 || e.cfg.rules[i].Number == number {
				s.rules[i] = counter{}
			}
		}
		s.release()
	}
	for i := range e.cfg.logs {
		if number == 0 || e.cfg.rules[i].Number == number {
			e.cfg.logs[i].emitted.Store(0)
		}
	}
	return nil
}

// Decisions returns how many packets were evaluated, by what became of them.
func (e *Engine) Decisions() (map[firewall.Decision]firewall.Count, error) {
	all := map[firewall.Decision]firewall.Count{}
	for _, s := range e.shards {
		s.hold()
		for i, n := range &s.decisions {
			if n.Packets != 0 {
				d := firewall.DecisionAt(i)
				sum := all[d]
				sum.Add(n)
				all[d] = sum
			}
		}
		s.release()
	}
	return all, nil
}

// statesChunk is how many sets States and Cut look at before they let the worker continue.
const statesChunk = 512

// States yields the live states. Workers continue meanwhile.
func (e *Engine) States() iter.Seq2[firewall.State, error] {
	return func(yield func(firewall.State, error) bool) {
		var found []firewall.State
		for _, s := range e.shards {
			for _, t := range []*table{&s.established, &s.halfOpen} {
				for set := 0; set < len(t.tags); set += statesChunk {
					found = found[:0]
					s.hold()
					t.eachIn(set, set+statesChunk, func(r ref) {
						if st, ok := s.show(t, r); ok {
							found = append(found, st)
						}
					})
					s.release()
					for _, st := range found {
						if !yield(st, nil) {
							return
						}
					}
				}
			}
		}
	}
}

// DeleteStates ends the states for which drop returns true. Tick hands out resets for both ends of
// the TCP connections among them.
func (e *Engine) DeleteStates(drop func(firewall.State) bool) (int, error) {
	n := 0
	for _, s := range e.shards {
		for t, set := range s.chunks() {
			n += s.deleteIn(t, set, drop)
		}
	}
	return n, nil
}

// chunks yields the first set of each chunk of the tables. A visit of one after the other finds
// each state that is there all the time, although packets come meanwhile. States move only from the
// half-open ones to the established ones, and within these not before the end.
func (s *shard) chunks() iter.Seq2[*table, int] {
	return func(yield func(*table, int) bool) {
		s.walkers(1)
		defer s.walkers(-1)
		for _, t := range []*table{&s.halfOpen, &s.established} {
			for set := 0; set < len(t.tags); set += statesChunk {
				if !yield(t, set) {
					return
				}
			}
		}
	}
}

func (s *shard) walkers(n int) {
	s.hold()
	s.walks += n
	s.release()
}

// deleteIn is DeleteStates for one chunk.
func (s *shard) deleteIn(t *table, set int, drop func(firewall.State) bool) (n int) {
	s.hold()
	defer s.release()
	t.eachIn(set, set+statesChunk, func(r ref) {
		if st, ok := s.show(t, r); ok && drop(st) {
			s.reset(&t.entries[r])
			s.end(t, r, st.Last)
			n++
		}
	})
	return n
}

// Resets returns how many resets of DeleteStates Tick has not handed out yet.
func (e *Engine) Resets() (n int) {
	for _, s := range e.shards {
		s.hold()
		n += len(s.resets)
		s.release()
	}
	return n
}

// Close lets go of everything. No worker may be evaluating.
func (e *Engine) Close() error {
	e.shards, e.workers = nil, nil
	return nil
}

// Memory returns the bytes that the tables for states take.
func (e *Engine) Memory() int {
	n := 0
	for _, s := range e.shards {
		n += s.established.bytes() + s.halfOpen.bytes()
	}
	return n
}
