package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
)

// TestSpread: whatever backends come and go, each has as many slots as another or one more, and no
// slot leaves a backend that stays for another reason than that.
func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(testrand.Seed(t), 1))
	var slots [serviceSlots]uint8
	var names []int // of the backends, by index
	for round := range 2000 {
		old, oldNames := slots, names
		names = nil
		for _, name := range r.Perm(maxBackends)[:r.IntN(maxBackends+1)] {
			if r.IntN(2) == 0 || len(oldNames) == 0 {
				names = append(names, name)
			}
		}
		if r.IntN(2) == 0 && len(oldNames) > 0 { // one goes or comes
			names = append([]int(nil), oldNames[r.IntN(2):]...)
		}
		index := map[int]int{}
		for i, name := range names {
			index[name] = i
		}
		var held [serviceSlots]int
		had := make([]int, len(names))
		for i := range held {
			held[i] = -1
			if len(oldNames) == 0 {
				continue
			}
			if b, stays := index[oldNames[old[i]]]; stays {
				held[i] = b
				had[b]++
			}
		}
		slots = spread(held, len(names))
		if len(names) == 0 {
			continue
		}
		checkSpread(t, round, slots, held, had)
	}
}

func checkSpread(t *testing.T, round int, slots [serviceSlots]uint8, held [serviceSlots]int,
	had []int) {
	t.Helper()
	n := len(had)
	has, lost, gained := make([]int, n), make([]int, n), make([]int, n)
	for i, b := range slots {
		has[b]++
		if held[i] != int(b) {
			gained[b]++
			if held[i] >= 0 {
				lost[held[i]]++
			}
		}
	}
	for b := range n {
		if has[b] != serviceSlots/n && has[b] != serviceSlots/n+1 {
			t.Fatalf("round %d: backend %d of %d has %d slots", round, b, n, has[b])
		}
		if lost[b] > 0 && gained[b] > 0 {
			t.Fatalf("round %d: backend %d lost %d slots and got %d", round, b, lost[b], gained[b])
		}
		if lost[b] > 0 && had[b] <= serviceSlots/n {
			t.Fatalf("round %d: backend %d lost slots of its %d", round, b, had[b])
		}
	}
}
