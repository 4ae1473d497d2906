package soft

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
)

// flowsOf makes half-open states of so many sources, and returns what proves each flow.
func flowsOf(t *testing.T, w *Worker, in *firewall.Input, n int) (prove []func()) {
	t.Helper()
	pass := func(p []byte) {
		t.Helper()
		if v := w.Evaluate(in, p); !v.Pass {
			t.Fatal(v)
		}
	}
	for i := range n {
		from := fmt.Sprintf("10.%d.%d.%d:1000", 1+i>>16, i>>8&0xff, i&0xff)
		there, back := udp(t, from, "10.0.0.2:53"), udp(t, "10.0.0.2:53", from)
		pass(there)
		pass(back)
		prove = append(prove, func() { pass(there) })
	}
	return prove
}

// TestStatesOnce: a list holds each state that lives all the time exactly once, although states
// are established meanwhile and so move to the other table. Lists that are read at once do not
// disturb each other.
func TestStatesOnce(t *testing.T) {
	const n = 5000
	o := Options{Options: firewall.DefaultOptions()}
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 4*n, 4*n, 0 // several chunks
	in := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1}, Now: time.Second}
	r := rand.New(rand.NewPCG(4, 2))
	for round := range 10 {
		e := load(t, o, "add allow udp from any to any keep-state")
		prove := flowsOf(t, e.Worker(0), &in, n)
		r.Shuffle(n, func(i, j int) { prove[i], prove[j] = prove[j], prove[i] })
		some := func(most int) {
			for range min(r.IntN(most), len(prove)) {
				prove[0]()
				prove = prove[1:]
			}
		}
		some(n / 2)
		seen := map[string]int{}
		within := round % 2 * 1000 // where another list begins
		for s, err := range e.States() {
			if err != nil {
				t.Fatal(err)
			}
			if seen[s.From.String()]++; r.IntN(30) == 0 {
				some(60)
			}
			if within--; within == 0 {
				inner := 0
				for range e.States() {
					inner++
					some(2)
				}
				if inner != n {
					t.Errorf("round %d: the list within has %d of %d states", round, inner, n)
				}
			}
		}
		if len(seen) != n {
			t.Errorf("round %d: %d of %d states are listed", round, len(seen), n)
		}
		for from, times := range seen {
			if times != 1 {
				t.Errorf("round %d: %s is listed %d times", round, from, times)
				break
			}
		}
	}
}
