package rule

import (
	"slices"

	"github.com/weirnet/weir/internal/program"
)

// known finds the class that has a vector already.
type known struct {
	vectors *program.Vectors
	last    map[uint64]uint32 // by hash of a vector: 1 + the last class that has it
	before  []uint32          // by class: 1 + the class before it with the same hash
	scratch []uint64
}

// begin forgets all and takes vectors that have no class yet. There will be most at most.
func (k *known) begin(vectors *program.Vectors, words, most int) {
	if old := len(k.last); k.last == nil || old > few && old/4 > most {
		k.last = make(map[uint64]uint32, most)
	}
	clear(k.last)
	k.vectors, k.before = vectors, emptied(k.before, most)
	k.scratch = emptied(k.scratch, words)[:words]
}

func (k *known) find(hash uint64, vector []uint64) (class uint32, found bool) {
	for next := k.last[hash]; next > 0; next = k.before[next-1] {
		k.vectors.Read(int(next-1), k.scratch)
		if slices.Equal(k.scratch, vector) {
			return next - 1, true
		}
	}
	return 0, false
}

func (k *known) add(hash uint64, vector []uint64, flips []uint32) (class uint32) {
	class = uint32(k.vectors.Len())
	k.vectors.Append(vector, flips)
	k.before = append(k.before, k.last[hash])
	k.last[hash] = class + 1
	return class
}
