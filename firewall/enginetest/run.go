package enginetest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/internal/testrand"
)

// decisions returns how many decisions are compared, from the environment variable WEIR_DECISIONS.
func decisions() (uint64, error) {
	text := os.Getenv("WEIR_DECISIONS")
	if text == "" {
		return 20000, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("environment variable WEIR_DECISIONS: %w", err)
	}
	return n, nil
}

// stepsPerCase is the length of a random sequence.
const stepsPerCase = 200

// found are seeds that once showed a difference.
var found = []uint64{1427646790, 1486070663, 3472312358}

// Run compares an engine with the model on random rules of the language that it has, and random
// packets. fresh returns an empty engine made with the options that it is given: these, with fewer
// half-open states of a source now and then, or liberal. The first difference is made small and
// fails the test.
func Run(t *testing.T, options firewall.Options, have program.Features,
	newSubject func(firewall.Options) (Subject, error)) {
	t.Helper()
	seeds, err := seeds(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seeds %d to %d", seeds[0], seeds[len(seeds)-1])
	for _, s := range seeds {
		c := RandomCase(s, have, options, stepsPerCase)
		d, err := c.Run(options, newSubject)
		if err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		if d != nil {
			t.Fatal(d.Shrink(options, newSubject, 20*time.Second))
		}
	}
}

// seeds returns those of the cases to play: always the same, unless testrand.Variable asks for new
// ones or for one.
func seeds(t *testing.T) ([]uint64, error) {
	t.Helper()
	count, err := decisions()
	if err != nil {
		return nil, err
	}
	first, all := uint64(1), slices.Clone(found)
	switch os.Getenv(testrand.Variable) {
	case "":
	case "random":
		first, all = testrand.Seed(t)&0xffffffff, nil
	default:
		return []uint64{testrand.Seed(t)}, nil
	}
	for n := range (count + stepsPerCase - 1) / stepsPerCase {
		all = append(all, first+n)
	}
	return all, nil
}

// Shrink looks for a shorter case that still differs, for at most a while.
func (d *Difference) Shrink(options firewall.Options,
	newSubject func(firewall.Options) (Subject, error),
	most time.Duration) *Difference {
	stop := time.Now().Add(most)
	best := d
	try := func(c Case) bool {
		got, err := c.Run(options, newSubject)
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
				c.Rules[set] = append(append([]string(nil), c.Rules[set][:i]...),
					c.Rules[set][i+1:]...)
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
