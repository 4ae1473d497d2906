package soft

import (
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
)

// TestDeleteStatesMissesNone: a state that is established while states are deleted, and so moves to
// the other table, is deleted too.
func TestDeleteStatesMissesNone(t *testing.T) {
	o := Options{Options: firewall.DefaultOptions()}
	o.MaxStates, o.MaxHalfOpen = 1000, 1000 // a table is one chunk
	in := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1}, Now: time.Second}
	there, back := udp(t, "10.0.0.1:1000", "10.0.0.2:53"), udp(t, "10.0.0.2:53", "10.0.0.1:1000")
	for when := range 2 {
		e := load(t, o, "add allow udp from any to any keep-state")
		w, s := e.Worker(0), e.shards[0]
		pass := func(p []byte) {
			t.Helper()
			if v := w.Evaluate(&in, p); !v.Pass {
				t.Fatal(v)
			}
		}
		pass(there)
		pass(back)
		if s.halfOpen.used != 1 {
			t.Fatal("the state is not half-open")
		}
		n, chunk := 0, 0
		for v := range s.chunks() {
			if chunk == when {
				pass(there) // proves the flow
			}
			n += s.deleteIn(v, func(firewall.State) bool { return true })
			chunk++
		}
		if n != 1 || chunk != 2 {
			t.Errorf("proved before chunk %d of %d: %d states are deleted", when, chunk, n)
		}
	}
}

// TestStatesKeepTheirPlaces: in a full table a state moves to make space for a new one, but not
// while states are deleted. Then it could move to where they have been deleted already.
func TestStatesKeepTheirPlaces(t *testing.T) {
	const now = time.Second
	o := Options{Options: firewall.DefaultOptions()}
	o.MaxStates = 1000
	e := load(t, o, "add allow udp from any to any keep-state")
	e.opts.MaxStates = 1 << 20 // more than the table holds
	s := e.shards[0]
	made := uint64(0)
	// fill makes states until there is no space for one.
	fill := func() (moved bool) {
		before := s.moves
		for {
			made++
			key := numbered(made)
			h := hash(&key, &s.established.seed)
			table, r, _ := s.reserve(false, h, now)
			if r == noRef {
				return s.moves != before
			}
			x := table.put(r, &key, h, now)
			x.rule = s.cfg.ids[0]
			x.storeSide(&flow.Side{Last: now}, 0)
		}
	}
	for range s.chunks() {
		if fill() {
			t.Error("a state moved while states are visited")
		}
		break
	}
	if !fill() {
		t.Error("no state moved when none are visited")
	}
}
