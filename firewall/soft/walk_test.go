package soft

import (
	"math/rand/v2"
	"testing"

	"github.com/weirnet/weir/internal/program"
)

// lookupConfig is the part of a config that nextLookup reads, with so many rules, each of which
// looks up one of the flow names.
func lookupConfig(rules int, flow func(slot int) uint8, flows int) *config {
	c := &config{flows: make([]uint8, flows)}
	for slot := range rules {
		c.rules = append(c.rules, program.Rule{Flow: flow(slot)})
		c.lookups = append(c.lookups, uint16(slot))
	}
	c.rules = append(c.rules, program.Rule{})
	return c
}

// TestNextLookup compares the next rule that looks up states with what all rules say, while names
// are looked up and the walk jumps.
func TestNextLookup(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	for range 200 {
		flows := 1 + r.IntN(70)
		cfg := lookupConfig(1+r.IntN(60), func(int) uint8 {
			if r.IntN(10) == 0 {
				return program.AnyFlow
			}
			return uint8(r.IntN(flows))
		}, flows)
		j := &job{cfg: cfg}
		j.reset()
		last := len(cfg.rules) - 1
		for pc, step := 0, 0; step < 400; step++ {
			want := pc
			for want < last && j.wasLookedUp(cfg.rules[want].Flow) {
				want++
			}
			if got := j.nextLookup(pc); got != want {
				t.Fatalf("from %d: rule %d, want %d", pc, got, want)
			}
			switch r.IntN(4) {
			case 0:
				id := r.IntN(flows)
				j.lookedUp[id>>6] |= 1 << (id & 63)
			case 1:
				pc = r.IntN(last + 1)
			default:
				pc = min(pc+1, last)
			}
		}
	}
}

// TestNextLookupSearchesOnce: a visit of a rule does not go over the rules with states again, or it
// would cost as much as there are.
func TestNextLookupSearchesOnce(t *testing.T) {
	const rules = 100
	for _, looked := range []uint64{1, 1<<2 - 1} { // the first name, then both
		second := func(slot int) uint8 { return uint8(slot / (rules - 1)) } // the last
		cfg := lookupConfig(rules, second, 2)
		j := &job{cfg: cfg}
		j.reset()
		j.lookedUp[0] = looked
		want := j.nextLookup(0)
		cfg.lookups = nil // what would be searched
		for pc := range want + 1 {
			if got := j.nextLookup(pc); got != want {
				t.Fatalf("%b, from %d: rule %d, want %d", looked, pc, got, want)
			}
		}
	}
}
