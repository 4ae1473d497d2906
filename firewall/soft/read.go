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

// States yields the live states. Workers continue meanwhile: a state that lives all the time comes
// once.
func (e *Engine) States() iter.Seq2[firewall.State, error] {
	return func(yield func(firewall.State, error) bool) {
		var found []firewall.State
		for _, s := range e.shards {
			for v := range s.chunks() {
				found = s.showIn(v, found[:0])
				for _, st := range found {
					if !yield(st, nil) {
						return
					}
				}
			}
		}
	}
}

// showIn appends the states of one chunk.
func (s *shard) showIn(v *visit, found []firewall.State) []firewall.State {
	s.hold()
	defer s.release()
	v.look(s, func(r ref) {
		if st, ok := s.show(v.table, r); ok {
			found = append(found, st)
		}
	})
	return found
}

// DeleteStates ends the states for which drop returns true. Tick hands out resets for both ends of
// the TCP connections among them.
func (e *Engine) DeleteStates(drop func(firewall.State) bool) (int, error) {
	n := 0
	for _, s := range e.shards {
		for v := range s.chunks() {
			n += s.deleteIn(v, drop)
		}
	}
	return n, nil
}

// deleteIn is DeleteStates for one chunk.
func (s *shard) deleteIn(v *visit, drop func(firewall.State) bool) (n int) {
	s.hold()
	defer s.release()
	t := v.table
	v.look(s, func(r ref) {
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
