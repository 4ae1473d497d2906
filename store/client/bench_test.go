package client_test

import (
	"fmt"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/wire"
)

// BenchmarkStep is what a host does for a change of a pod of another one, from the frame on: decode
// it, and apply it to the guarded copy. The copy has 1,000 hosts.
func BenchmarkStep(b *testing.B) {
	value := func(i int) []byte {
		text := `{"version":1,"pods":[`
		for n := range 10 {
			text += fmt.Sprintf(`{"name":"default/web-%d-%d","addrs":["10.64.%d.%d"],`+
				`"labels":{"app":"web","tier":"front"}},`, i, n, i%250, n)
		}
		return []byte(text + `{}]}`)
	}
	s := store.Snapshot{Revision: 1}
	for i := range 1000 {
		s.Entries = append(s.Entries, store.Entry{Key: fmt.Sprintf("%sh%d/0", cluster.PodsTree, i),
			Value: value(i)})
	}
	frames := make([][]byte, 1000)
	for i := range frames {
		frames[i] = wire.Batches(int64(i+2), []store.Change{{Entry: store.Entry{
			Key: s.Entries[i].Key, Value: value(i + 1000), Revision: int64(i + 2)}}})
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := wire.DecodeBatch(frames[i%1000][5:]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(frames[0])), "bytes")
	})
	b.Run("whole", func(b *testing.B) {
		held := store.NewGuarded(cluster.Guard(), s)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			m, err := wire.DecodeBatch(frames[i%1000][5:])
			if err != nil {
				b.Fatal(err)
			}
			held.Step(store.Batch{Revision: m.Revision, Changes: m.Changes})
		}
	})
}
