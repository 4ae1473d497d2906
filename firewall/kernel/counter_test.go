package kernel

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// manyRules are n rules whose numbers begin at first.
func manyRules(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "add %d deny udp from any to any %d\n", first+i, 1+i)
	}
	return b.String()
}

// TestCountersAreOfOneProgram: while rules are replaced, the counters that are read a part at a
// time are all of the rules before or all of those after.
func TestCountersAreOfOneProgram(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	const n = 3*countersAtOnce + 7
	one, other := compile(t, manyRules(1000, n)), compile(t, manyRules(5000, n))
	if err := e.Load(one); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var loads sync.WaitGroup
	loads.Go(func() {
		defer close(done)
		for i := range 40 {
			next := other
			if i%2 == 1 {
				next = one
			}
			if err := e.Load(next); err != nil {
				t.Error(err)
			}
		}
	})
	defer loads.Wait()
	read := map[uint16]int{}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		all, err := e.Rules()
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != n+1 {
			t.Fatalf("%d counters, want %d", len(all), n+1)
		}
		first := all[0].Number
		for i, c := range all[:n] {
			if c.Number != first+uint16(i) {
				t.Fatalf("counter %d is of rule %d, the first one of rule %d", i, c.Number, first)
			}
		}
		read[first]++
	}
	t.Log("first rules read:", read)
}

// BenchmarkRules reads the counters of 10,000 rules, and reports the longest time that a change
// would wait for it.
func BenchmarkRules(b *testing.B) {
	nstest.RequireRoot(b)
	e, err := Open(Config{Options: firewall.DefaultOptions()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(compile(b, manyRules(1, 10_000))); err != nil {
		b.Fatal(err)
	}
	least := time.Hour
	for range 10 {
		longest, stop := time.Duration(0), make(chan struct{})
		var changes sync.WaitGroup
		changes.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond):
				}
				began := time.Now()
				e.mu.Lock()
				e.mu.Unlock() //lint:ignore SA2001 how long it takes is all that matters
				longest = max(longest, time.Since(began))
			}
		})
		if _, err := e.Rules(); err != nil {
			b.Fatal(err)
		}
		close(stop)
		changes.Wait()
		least = min(least, longest)
	}
	for b.Loop() {
		if _, err := e.Rules(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(least.Microseconds()), "us-held")
}
