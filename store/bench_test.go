package store

import (
	"fmt"
	"runtime"
	"testing"
)

// benchSizes are keys in the store: 3,000 are about a thousand hosts with ten pods each.
var benchSizes = []int{3000, 100000}

func benchSnapshot(keys int) (s Snapshot) {
	for i := range keys {
		s.Entries = append(s.Entries, Entry{Key: fmt.Sprintf("/weir/1/w/pods/host%06d/0", i),
			Value: make([]byte, 1000), Revision: int64(i)})
	}
	return s
}

var benchGuard = Guard{Kind: func(string) string { return "pods" },
	Meant: func(*Copy, string) bool { return false }}

// BenchmarkStep applies a batch with one change. resident-B/key is what a guarded copy
// needs beside the values.
func BenchmarkStep(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchSnapshot(n)
			before := heap()
			d := NewGuarded(benchGuard, s)
			resident := float64(heap()-before) / float64(n)
			for i := 0; b.Loop(); i++ {
				e := Entry{Key: s.Entries[i%n].Key, Value: make([]byte, 1000), Revision: 1}
				e.Value[0], e.Value[1] = byte(i+1), byte((i+1)>>8)
				d.Step(Batch{Revision: int64(i), Changes: []Change{{Entry: e}}})
			}
			b.ReportMetric(resident, "resident-B/key")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkDiff compares two copies that differ in one key, digests included.
func BenchmarkDiff(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchSnapshot(n)
			from, to := NewCopy(s), NewCopy(s)
			from.Diff(to)
			for i := 0; b.Loop(); i++ {
				to.put(Entry{Key: s.Entries[7].Key, Value: []byte{byte(i)}})
				if len(from.Diff(to)) != 1 {
					b.Fatal("not one change")
				}
			}
		})
	}
}
