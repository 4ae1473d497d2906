package client

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// TestBatchesMerge: batches that wait are one step, with the last change of each key, ordered, each
// key once: also if weir-store names a key twice or in no order.
func TestBatchesMerge(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		in, want := newInbox(), map[string]string{}
		revision := int64(0)
		for n := 1 + random.IntN(4); n > 0; n-- {
			revision++
			m := wire.Batch{Revision: revision, More: n > 1 && random.IntN(2) == 0}
			for range random.IntN(4) {
				e := store.Entry{Key: fmt.Sprint(random.IntN(5)), Value: []byte{byte(random.Int())}}
				m.Changes = append(m.Changes, store.Change{Entry: e, Deleted: random.IntN(4) == 0})
			}
			for _, ch := range m.Changes {
				want[ch.Key] = fmt.Sprint(ch)
			}
			if err := in.batch(m); err != nil {
				t.Fatal(err)
			}
		}
		got := in.take().batch.ordered()
		var keys []string
		for _, ch := range got.Changes {
			if keys = append(keys, ch.Key); fmt.Sprint(ch) != want[ch.Key] {
				t.Fatalf("seed %d: %v, expected %v", seed, ch, want[ch.Key])
			}
		}
		if got.Revision != revision || !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("seed %d: revision %d, keys %v", seed, got.Revision, keys)
		}
	}
}
