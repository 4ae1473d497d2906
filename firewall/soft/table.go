package soft

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// table is a set-associative table of states. A keyed hash names two candidate sets of eight
// entries; a word of eight tag bytes per set names the entries to compare. So the work for any
// packet is bounded: two words and, but for one in thirty lookups, only the wanted entry. It has
// one writer at a time, the holder of its shard.
type table struct {
	tags    []uint64        // per set, a byte per entry, 0 is free
	entries []entry         // eight per set
	created []time.Duration // when the entry was made
	eras    []uint16        // of the track that counts the entry
	// when sweep visits the entry, in units of visitUnit: it does not expire earlier; never if it
	// is free
	visits []uint32
	used   int
	hand   int // the clock hand: the next set that sweep visits
	purge  int // for how many sets sweep visits every entry, since rules are gone
	seed   [4]uint64
}

// visitUnit is the unit of table.visits as a power of two of nanoseconds: 134 ms, so that 32 bits
// last 18 years.
const visitUnit = 27

// never is table.visits of a free entry.
const never = ^uint32(0)

// visitOf returns a time in the unit of table.visits. Those that do not fit are the same: sweep
// visits their entries each time.
func visitOf(at time.Duration) uint32 { return uint32(min(uint64(at)>>visitUnit, uint64(never-1))) }

// ways is the number of entries of a set.
const ways = 8

// ref is the place of an entry: its index in table.entries. noRef is none.
type ref int

const noRef ref = -1

// newTable returns a table for n states. It nearly always holds them: with two candidate sets and
// moves between them, sets of eight overflow above 95 % only.
func newTable(n int, seed [4]uint64) table {
	sets := max(2, (n*20/19+ways-1)/ways)
	n = sets * ways
	const size, page = int(unsafe.Sizeof(entry{})), 4096
	// One block for everything, so that huge pages can hold nearly all of it. Entries begin at a
	// page: each lies in two neighbouring cache lines.
	block := make([]entry, n+(n*(8+4+2)+sets*8+page)/size+1)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&block[0])), len(block)*size)
	bytes = bytes[-int(uintptr(unsafe.Pointer(&block[0])))&(page-1):]
	huge(bytes[:len(bytes)&^(page-1)])
	t := table{seed: seed}
	t.entries, bytes = carve[entry](bytes, n)
	t.created, bytes = carve[time.Duration](bytes, n)
	t.tags, bytes = carve[uint64](bytes, sets)
	t.visits, bytes = carve[uint32](bytes, n)
	t.eras, _ = carve[uint16](bytes, n)
	for i := range t.visits {
		t.visits[i] = never
	}
	return t
}

// carve cuts n values off a block of zeroed memory that is aligned for them. T holds no pointers.
func carve[T any](b []byte, n int) (values []T, rest []byte) {
	size := n * int(unsafe.Sizeof(*new(T)))
	_ = b[:size]
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n), b[size:]
}

// mix multiplies and folds. It is the only operation of the hash.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// hash mixes a key with the table's secret.
func hash(k *flow.Key, seed *[4]uint64) uint64 {
	low, high := ends(k)
	return hashEnds(&low, &high, k.Ports, k.Proto, seed)
}

// hashEnds is the hash of a flow between the ends a and b; ports is that of a << 16 | that of b. It
// is symmetric: exchanging the ends changes nothing, so they need not be ordered first. An attacker
// who does not know the secret cannot aim at a set. In IPv4 address and port of an end fill
// different bits of one word, and in IPv6 a product of both is added. The ends meet in a product of
// words that are masked by the secret.
//
// The flow id is left out, so that all flow names of a flow share sets and shard.
func hashEnds(a, b *[16]byte, ports uint32, proto packet.Proto, seed *[4]uint64) uint64 {
	aHi, aLo := halves(a)
	bHi, bLo := halves(b)
	aLo ^= uint64(ports >> 16)
	bLo ^= uint64(ports & 0xffff)
	if aHi|bHi != 0 {
		aLo ^= mix(aHi^seed[2], uint64(ports>>16)^seed[3])
		bLo ^= mix(bHi^seed[2], uint64(ports&0xffff)^seed[3])
	}
	return mix(mix(aLo^seed[0], bLo^seed[0])^uint64(proto), seed[1]|1)
}

// places returns the candidate sets and the tag of a hash.
func (t *table) places(h uint64) (a, b int, tag uint8) {
	n := uint64(len(t.tags))
	a = int((h >> 32) * n >> 32)
	b = int((h & 0xffffffff) * n >> 32)
	return a, b, max(uint8(h), 1)
}

const (
	ones = 0x0101010101010101
	lows = 0x7f7f7f7f7f7f7f7f
)

// match returns a word with the high bit of each byte of w that equals tag. It is exact: the
// shorter test that borrows from one byte to the next would also name a free entry above a true
// match, which still has its old key.
func match(w uint64, tag uint8) uint64 {
	x := w ^ ones*uint64(tag)
	return ^(x&lows + lows | x | lows)
}

// find returns the entry with the key, or noRef.
func (t *table) find(k *flow.Key, h uint64) ref {
	a, b, tag := t.places(h)
	wa, wb := t.tags[a], t.tags[b]
	for m := match(wa, tag); m != 0; m &= m - 1 {
		i := a*ways + bits.TrailingZeros64(m)>>3
		if t.entries[i].is(k) {
			return ref(i)
		}
	}
	for m := match(wb, tag); m != 0; m &= m - 1 {
		i := b*ways + bits.TrailingZeros64(m)>>3
		if t.entries[i].is(k) {
			return ref(i)
		}
	}
	return noRef
}

// free returns a free entry in the emptier of the two sets of h, or noRef.
func (t *table) free(h uint64) ref {
	a, b, _ := t.places(h)
	wa, wb := match(t.tags[a], 0), match(t.tags[b], 0)
	if bits.OnesCount64(wb) > bits.OnesCount64(wa) {
		a, wa = b, wb
	}
	if wa == 0 {
		return noRef
	}
	return ref(a*ways + bits.TrailingZeros64(wa)>>3)
}

// soonest returns the entry in use in the two sets of h that sweep would visit first, or noRef if
// both are empty. It has no branches that depend on the times: no CPU could predict them.
func (t *table) soonest(h uint64) ref {
	a, b, _ := t.places(h)
	va, vb := (*[ways]uint32)(t.visits[a*ways:]), (*[ways]uint32)(t.visits[b*ways:])
	first, second := uint64(never)<<32, uint64(never)<<32
	for i := range ways {
		first = min(first, uint64(va[i])<<32|uint64(a*ways+i))
		second = min(second, uint64(vb[i])<<32|uint64(b*ways+i))
	}
	first = min(first, second)
	if uint32(first>>32) == never {
		return noRef
	}
	return ref(uint32(first))
}

// move frees an entry in the sets of h by moving one to its other set. It returns the
// entry that became free, or noRef.
func (t *table) move(h uint64) ref {
	a, b, _ := t.places(h)
	for _, set := range [2]int{a, b} {
		for i := set * ways; i < (set+1)*ways; i++ {
			k := t.entries[i].key()
			eh := hash(&k, &t.seed)
			x, y, _ := t.places(eh)
			other := x + y - set
			if other == set {
				continue
			}
			m := match(t.tags[other], 0)
			if m == 0 {
				continue
			}
			to := other*ways + bits.TrailingZeros64(m)>>3
			t.entries[to] = t.entries[i]
			t.created[to], t.visits[to], t.eras[to] = t.created[i], t.visits[i], t.eras[i]
			t.setTag(ref(to), t.entries[i].tag())
			t.entries[i].id = 0
			t.setTag(ref(i), 0)
			t.visits[i] = never
			return ref(i)
		}
	}
	return noRef
}

// setTag writes the tag of an entry.
func (t *table) setTag(r ref, tag uint8) {
	shift := uint(r) % ways * 8
	w := &t.tags[uint(r)/ways]
	*w = *w&^(0xff<<shift) | uint64(tag)<<shift
}

// put claims a free entry for the key and returns it zeroed but for the key.
func (t *table) put(r ref, k *flow.Key, h uint64, now time.Duration) *entry {
	tag := max(uint8(h), 1)
	e := &t.entries[r]
	e.setKey(k, tag)
	t.created[r] = now
	t.setTag(r, tag)
	t.used++
	return e
}

// remove frees an entry. What still names it does not take it for the flow's.
func (t *table) remove(r ref) {
	t.entries[r].id = 0
	t.setTag(r, 0)
	t.visits[r] = never
	t.used--
}

// each calls f for every entry in use.
func (t *table) each(f func(ref)) { t.eachIn(0, len(t.tags), f) }

// eachIn calls f for the entries in use of some sets. f may remove its entry.
func (t *table) eachIn(from, to int, f func(ref)) {
	for set := from; set < min(to, len(t.tags)); set++ {
		w := t.tags[set]
		for i := range ways {
			if w>>(8*i)&0xff != 0 {
				f(ref(set*ways + i))
			}
		}
	}
}

// bytes returns the memory that the table takes.
func (t *table) bytes() int {
	return len(t.tags)*8 + len(t.entries)*int(unsafe.Sizeof(entry{})) + len(t.created)*(8+4+2)
}
