package soft

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/packet"
)

// TestPrefixes compares the trie with a map that is searched from end to end, and holds older
// versions to what they were.
func TestPrefixes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	random := func() netip.Prefix {
		if rnd.IntN(2) == 0 {
			a := netip.AddrFrom4([4]byte{10, byte(rnd.IntN(2)), byte(rnd.IntN(4)),
				byte(rnd.IntN(256))})
			return netip.PrefixFrom(a, rnd.IntN(33)).Masked()
		}
		a := [16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, byte(rnd.IntN(2)), 15: byte(rnd.IntN(256))}
		return netip.PrefixFrom(netip.AddrFrom16(a), rnd.IntN(129)).Masked()
	}
	type version struct {
		trie *prefixes
		all  map[netip.Prefix]uint32
	}
	check := func(v version) {
		for range 20 {
			a := random().Addr()
			bits, value := -1, uint32(0)
			for p, x := range v.all {
				if p.Contains(a) && p.Bits() > bits {
					bits, value = p.Bits(), x
				}
			}
			hi, lo := packet.AddrWords(a)
			got, ok := v.trie.find(hi, lo, a.Is4())
			if ok != (bits >= 0) || got != value {
				t.Fatalf("%v: got %d %v, want %d (%d bits)", a, got, ok, value, bits)
			}
		}
		if v.trie.n != len(v.all) {
			t.Fatalf("%d members, want %d", v.trie.n, len(v.all))
		}
	}
	for range 200 {
		now := version{&prefixes{}, map[netip.Prefix]uint32{}}
		var old []version
		for range 60 {
			all := maps.Clone(now.all)
			p, x := random(), rnd.Uint32()
			trie, had := now.trie, false
			if _, had = all[p]; had && rnd.IntN(2) == 0 || rnd.IntN(6) == 0 {
				var ok bool
				if trie, ok = trie.without(p); ok != had {
					t.Fatalf("without %v: %v, want %v", p, ok, had)
				}
				delete(all, p)
			} else {
				trie = trie.with(p, x)
				all[p] = x
			}
			if v, ok := trie.exact(p); ok != (all[p] != 0) || ok && v != all[p] {
				t.Fatalf("exact %v: %d %v", p, v, ok)
			}
			now = version{trie, all}
			old = append(old, now)
		}
		for _, v := range old {
			check(v)
		}
	}
}
