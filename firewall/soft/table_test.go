package soft

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

var testSeed = [4]uint64{0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0,
	0x082efa98ec4e6c89}

// numbered returns the key of flow k.
func numbered(k uint64) flow.Key {
	return flow.Key{LowLo: 0xffff<<32 | 0x08010101, HighLo: 0xffff<<32 | (0x09000000 + k>>16),
		Ports: uint32(k&0xffff)<<16 | 53, Proto: packet.ProtoUDP}
}

// TestTableFills puts as many states in as the table is made for: nearly all must find space, and
// all that did must be found.
func TestTableFills(t *testing.T) {
	const n = 100_000
	tb := newTable(n, testSeed)
	var holding []flow.Key
	moves := 0
	for k := range uint64(n) {
		key := numbered(k)
		h := hash(&key, &testSeed)
		r := tb.free(h)
		if r == noRef {
			r = tb.move(h)
			moves++
		}
		if r != noRef {
			tb.put(r, &key, h, time.Duration(k))
			holding = append(holding, key)
		}
	}
	if len(holding) < n*999/1000 {
		t.Errorf("%d of %d states found space", len(holding), n)
	}
	t.Logf("filled to %.1f %%, %d refused, %d moved", float64(tb.used)*100/float64(len(tb.entries)),
		n-len(holding), moves)
	for _, key := range holding {
		r := tb.find(&key, hash(&key, &testSeed))
		if r == noRef || tb.entries[r].key() != key {
			t.Fatalf("%+v is lost", key)
		}
		tb.remove(r)
		if tb.find(&key, hash(&key, &testSeed)) != noRef {
			t.Fatalf("%+v is still found", key)
		}
	}
	if tb.used != 0 {
		t.Errorf("%d left", tb.used)
	}
}

// TestMatchIsExact compares match with a loop over the bytes.
func TestMatchIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		tag, w, want := uint8(rnd.IntN(4)), uint64(0), uint64(0)
		for i := range ways {
			b := uint8(rnd.IntN(4)) // few values, so that free, equal and neighbouring ones meet
			w |= uint64(b) << (8 * i)
			if b == tag {
				want |= 0x80 << (8 * i)
			}
		}
		if got := match(w, tag); got != want {
			t.Fatalf("match(%#016x, %d) = %#016x, want %#016x", w, tag, got, want)
		}
	}
}

// TestHashIsSymmetric holds hashEnds to what the packet path relies on.
func TestHashIsSymmetric(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 10000 {
		k := flow.Key{LowHi: rnd.Uint64() * (rnd.Uint64() & 1), LowLo: rnd.Uint64(),
			HighHi: rnd.Uint64() * (rnd.Uint64() & 1), HighLo: rnd.Uint64()}
		a, b := ends(&k)
		ports, proto := rnd.Uint32(), uint8(rnd.Uint32())
		if hashEnds(&a, &b, ports, packet.Proto(proto), &testSeed) != hashEnds(&b, &a,
			ports<<16|ports>>16, packet.Proto(proto),
			&testSeed) {
			t.Fatal("not symmetric")
		}
	}
}

// crafted returns n keys that an attacker picks who knows everything but the secret: with the
// secret that he guesses, all meet in the same few sets of a table.
func crafted(n int, v6 bool) []flow.Key {
	guess := [4]uint64{1, 2, 3, 4}
	tb := newTable(1<<16, guess)
	rnd := rand.New(rand.NewPCG(7, 8))
	var keys []flow.Key
	for len(keys) < n {
		k := numbered(rnd.Uint64() >> 20)
		if v6 {
			k.HighHi, k.HighLo = 0x20010db8<<32, rnd.Uint64()
			k.LowHi, k.LowLo = 0x20010db8<<32, 1
		}
		if a, b, _ := tb.places(hash(&k, &guess)); a < 64 || b < 64 {
			keys = append(keys, k)
		}
	}
	return keys
}

// spread returns how many keys the fullest set of a large table would have if each key lay in its
// first set, and how many hashes are the same.
func spread(keys []flow.Key) (fullest, same int) {
	tb := newTable(1<<16, testSeed)
	sets := map[int]int{}
	hashes := map[uint64]bool{}
	for _, k := range keys {
		h := hash(&k, &testSeed)
		a, _, _ := tb.places(h)
		sets[a]++
		fullest = max(fullest, sets[a])
		if hashes[h] {
			same++
		}
		hashes[h] = true
	}
	return fullest, same
}

// TestCraftedKeysSpread holds keys that follow a pattern, or that were crafted for another secret,
// against random ones.
func TestCraftedKeysSpread(t *testing.T) {
	const n = 20_000
	rnd := rand.New(rand.NewPCG(9, 10))
	patterns := map[string]func(k uint64) flow.Key{
		"ports in turn":     func(k uint64) flow.Key { return numbered(k & 0xffff) },
		"addresses in turn": func(k uint64) flow.Key { return numbered(k << 16) },
		"both":              func(k uint64) flow.Key { return numbered(k<<16 | k&0xffff) },
		"low words that cancel ports": func(k uint64) flow.Key {
			return flow.Key{LowHi: 0x20010db8 << 32, LowLo: 1, HighHi: 0x20010db8<<32 | 1,
				HighLo: k << 48, Ports: 80<<16 | uint32(k&0xffff), Proto: packet.ProtoTCP}
		},
		"high words": func(k uint64) flow.Key {
			return flow.Key{LowHi: 0x20010db8 << 32, LowLo: 1, HighHi: 0x20010db8<<32 | k,
				HighLo: 1, Ports: 80<<16 | 999, Proto: packet.ProtoTCP}
		},
		"both ends alike": func(k uint64) flow.Key {
			return flow.Key{LowLo: 0xffff<<32 | k, HighLo: 0xffff<<32 | k, Ports: 80<<16 | 80,
				Proto: packet.ProtoTCP}
		},
	}
	random := make([]flow.Key, n)
	for i := range random {
		random[i] = numbered(rnd.Uint64() >> 24)
	}
	usual, _ := spread(random)
	check := func(name string, keys []flow.Key) {
		fullest, same := spread(keys)
		if fullest > usual+4 || same > 0 {
			t.Errorf("%s: %d in one set (random keys: %d), %d equal hashes", name, fullest, usual,
				same)
		}
	}
	for name, make := range patterns {
		var keys []flow.Key
		for k := range uint64(n) {
			keys = append(keys, make(k))
		}
		check(name, keys)
	}
	check("crafted", crafted(2000, false))
	check("crafted, IPv6", crafted(2000, true))
}

// TestMatch compares the search in a word of tags with a loop over its bytes.
func TestMatch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for range 100_000 {
		var b [8]byte
		for i := range b {
			b[i] = byte(rnd.IntN(4))
		}
		tag := byte(rnd.IntN(4))
		m := match(binary.LittleEndian.Uint64(b[:]), tag)
		first := true
		for i := range b {
			has := m>>(8*i+7)&1 != 0
			if b[i] == tag && !has {
				t.Fatalf("%v, %d: %#x", b, tag, m)
			}
			if first && has && b[i] != tag {
				t.Fatalf("%v, %d: the lowest bit of %#x is wrong", b, tag, m)
			}
			first = first && !has
		}
	}
}
