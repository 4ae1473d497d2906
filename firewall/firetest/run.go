package firetest

import (
	"flag"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// Settings of the random differ, for every engine's tests: go test ./firewall/soft -run Differ -firetest.decisions 1000000
var (
	decisions = flag.Int("firetest.decisions", 20000, "random decisions that Run compares")
	seed      = flag.Uint64("firetest.seed", 0, "play only the case with this seed")
)

// stepsPerCase is the length of a random sequence.
const stepsPerCase = 200

// Run compares an engine with the twin on random rules of the language that it has, and random packets. fresh returns an
// empty engine made with the options. The first difference is made small and fails the test.
func Run(t *testing.T, options firewall.Options, have rule.Features, fresh func() (Subject, error)) {
	t.Helper()
	first, last := uint64(time.Now().UnixNano())&0xffffffff, uint64(0)
	if *seed != 0 {
		first, last = *seed, *seed
	} else {
		last = first + uint64(*decisions/stepsPerCase)
		t.Logf("seeds %d to %d", first, last)
	}
	for s := first; s <= last; s++ {
		c := RandomCase(s, have, options, stepsPerCase)
		d, err := c.Run(options, fresh)
		if err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		if d != nil {
			t.Fatal(d.Shrink(options, fresh, 20*time.Second))
		}
	}
}

// Shrink looks for a shorter case that still differs, for at most a while.
func (d *Difference) Shrink(options firewall.Options, fresh func() (Subject, error), most time.Duration) *Difference {
	stop := time.Now().Add(most)
	best := d
	try := func(c Case) bool {
		got, err := c.Run(options, fresh)
		if err != nil || got == nil {
			return false
		}
		best = got
		return true
	}
	best.Case.Steps = best.Case.Steps[:best.Step+1]
	for smaller := true; smaller && time.Now().Before(stop); {
		smaller = false
		for n := max(1, len(best.Case.Steps)/2); n >= 1; n /= 2 {
			for i := 0; i+n <= len(best.Case.Steps) && time.Now().Before(stop); {
				c := *best.Case
				c.Steps = append(append([]Step(nil), c.Steps[:i]...), c.Steps[i+n:]...)
				if len(c.Steps) > 0 && try(c) {
					best.Case.Steps = best.Case.Steps[:best.Step+1]
					smaller = true
					continue
				}
				i += n
			}
		}
		for set := range best.Case.Rules {
			for i := 0; i < len(best.Case.Rules[set]) && time.Now().Before(stop); {
				c := *best.Case
				c.Rules = append([][]string(nil), c.Rules...)
				c.Rules[set] = append(append([]string(nil), c.Rules[set][:i]...), c.Rules[set][i+1:]...)
				if try(c) {
					smaller = true
					continue
				}
				i++
			}
		}
	}
	return best
}
