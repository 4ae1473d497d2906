package program

import (
	"iter"
	"slices"
)

// Vectors are the bit vectors of one dimension by class. Classes are made in the order of their
// keys, so that a vector differs from the one before by the few rules that begin or end between
// them. It is kept as these differences. Written out they are rules times classes, a hundred times
// as much for a long rule set.
type Vectors struct {
	words int
	flips []uint32 // rule indexes whose bits change from one class to the next
	ends  []uint32 // by class: where its flips end
	// Some vectors are written out, so that Read need not begin at the first: as many as take no
	// more memory than the flips.
	whole []uint64
	from  []uint32 // by class: which of them to begin with
	class []uint32 // by written-out vector: its class
}

// NewVectors returns no vectors, of words words each.
func NewVectors(words int) Vectors { return Vectors{words: words} }

// Reserve makes space for so many classes and flips at most.
func (v *Vectors) Reserve(classes, flips int) {
	v.flips = slices.Grow(v.flips, flips)
	v.ends, v.from = slices.Grow(v.ends, classes), slices.Grow(v.from, classes)
}

// Len returns the number of classes.
func (v *Vectors) Len() int { return len(v.ends) }

// Append adds a class: its vector, and the rule indexes by which it differs from the one before.
// One that is named twice does not differ. The first class has no use for them.
func (v *Vectors) Append(vector []uint64, flips []uint32) {
	last := len(v.class) - 1
	if last < 0 {
		flips = nil
	}
	class := uint32(len(v.ends))
	v.flips = append(v.flips, flips...)
	v.ends = append(v.ends, uint32(len(v.flips)))
	if last < 0 || len(v.flips)-int(v.ends[v.class[last]]) > 2*v.words {
		v.whole = append(v.whole, vector...)
		v.class = append(v.class, class)
		last++
	}
	v.from = append(v.from, uint32(last))
}

// Read writes the vector of a class into a slice of as many words.
func (v *Vectors) Read(class int, into []uint64) {
	k := int(v.from[class])
	copy(into, v.whole[k*v.words:(k+1)*v.words])
	flip(into, v.flips[v.ends[v.class[k]]:v.ends[class]])
}

// All returns all classes in order. The vector is valid until the next one.
func (v *Vectors) All() iter.Seq2[int, []uint64] {
	return func(yield func(int, []uint64) bool) {
		if v.Len() == 0 {
			return
		}
		vector := make([]uint64, v.words)
		v.Read(0, vector)
		for class := range v.ends {
			flip(vector, v.Flips(class))
			if !yield(class, vector) {
				return
			}
		}
	}
}

// Flips returns the rule indexes by which a class may differ from the one before. The first class
// has none.
func (v *Vectors) Flips(class int) []uint32 {
	if class == 0 {
		return nil
	}
	return v.flips[v.ends[class-1]:v.ends[class]]
}

// Dense returns all vectors written out, one after the other.
func (v *Vectors) Dense() []uint64 {
	all := make([]uint64, 0, v.Len()*v.words)
	for _, vector := range v.All() {
		all = append(all, vector...)
	}
	return all
}

func flip(vector []uint64, slots []uint32) {
	for _, slot := range slots {
		vector[slot/64] ^= 1 << (slot % 64)
	}
}
