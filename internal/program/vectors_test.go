package program

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestVectors compares Vectors with vectors that are written out.
func TestVectors(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for _, words := range []int{1, 3, 40} {
		v := NewVectors(words)
		var want [][]uint64
		now := make([]uint64, words)
		for class := range 500 {
			var flips []uint32
			most := 4
			if g.IntN(20) == 0 {
				most = words * 64 // many rules begin or end at one key
			}
			for range g.IntN(most) {
				flips = append(flips, uint32(g.IntN(words*64)))
			}
			if class > 0 && len(flips) > 0 { // there and back
				flips = append(flips, flips[0], flips[0])
			}
			flip(now, flips)
			v.Append(now, flips)
			want = append(want, slices.Clone(now))
		}
		if v.Len() != len(want) || !slices.Equal(v.Dense(), slices.Concat(want...)) {
			t.Fatalf("%d words: %d vectors, or other ones", words, v.Len())
		}
		got := make([]uint64, words)
		for range 2000 {
			class := g.IntN(len(want))
			if v.Read(class, got); !slices.Equal(got, want[class]) {
				t.Fatalf("%d words: class %d is %x, want %x", words, class, got, want[class])
			}
		}
		for class, vector := range v.All() {
			if !slices.Equal(vector, want[class]) {
				t.Fatalf("%d words: class %d of all is %x, want %x", words, class, vector,
					want[class])
			}
		}
		if len(v.whole) > len(v.flips)+words {
			t.Errorf("%d words: %d written out for %d flips", words, len(v.whole), len(v.flips))
		}
	}
	none := NewVectors(1)
	for range none.All() {
		t.Error("no vectors, and one comes")
	}
}
