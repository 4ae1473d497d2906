package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/rule"
)

// TestSums: the summaries that follow the differences between vectors are those of the vectors, and
// a vector takes its part of a row, with zeros behind it.
func TestSums(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&text, "add %d allow tcp from 10.%d.%d.0/%d to any %d-%d\n", 10+i, g.IntN(4),
			g.IntN(256), 8+g.IntN(17), 1+g.IntN(1000), 1000+g.IntN(1000))
	}
	set, err := rule.ParseFile("rules", text.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rule.Compile(set, rule.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	classes := 0
	for d := range p.Classes.Vectors {
		v := &p.Classes.Vectors[d]
		have := sums(v)
		w := rowWriter{}
		for i := range w.rows {
			w.rows[i] = [rowSize]byte{7}
		}
		const size = 256
		for class, vector := range v.All() {
			if have[class] != blocksOf(vector) {
				t.Fatalf("dimension %d, class %d: %b, not %b", d, class, have[class],
					blocksOf(vector))
			}
			classes++
			if class >= (chunk-1)*rowSize/size { // before the first flush
				continue
			}
			if err := w.vector(vector, size); err != nil {
				t.Fatal(err)
			}
			want := append(slices.Clone(bytesOf(vector)), make([]byte, size-8*len(vector))...)
			row := w.rows[class*size/rowSize]
			if at := class * size % rowSize; !slices.Equal(row[at:at+size], want) {
				t.Fatalf("dimension %d, class %d lies in row %d as %x", d, class,
					class*size/rowSize, row[at:at+size])
			}
		}
	}
	if classes < 1000 {
		t.Errorf("only %d classes", classes)
	}
}
