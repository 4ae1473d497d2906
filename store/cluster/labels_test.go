package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
)

// all returns what has a count.
func (c *labelCounts) all() map[Label]uint32 {
	names := map[uint32]string{}
	for name, t := range c.tables {
		names[t.number] = name
	}
	all := map[Label]uint32{}
	for m, n := range c.counts {
		all[Label{names[m.table], netip.AddrFrom16(m.addr).Unmap()}] = n
	}
	return all
}

// TestLabelCounts compares counts with a map, on random ones, and checks that no two tables have
// one number and that nothing is kept of a table without members.
func TestLabelCounts(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	c, want := newLabelCounts(), map[Label]uint32{}
	most := 0
	for range 20000 {
		l := Label{fmt.Sprint("app=", random.IntN(5)),
			netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(3))})}
		if random.IntN(3) == 0 {
			l.Addr = netip.MustParseAddr(fmt.Sprint("fd00::", random.IntN(3)))
		}
		by, was := 1-2*random.IntN(2), want[l]
		if had := c.add(l, by); had != (was > 0) {
			t.Fatalf("seed %d: %v had a label: %v", seed, l, had)
		}
		if want[l] = uint32(max(int(was)+by, 0)); want[l] == 0 {
			delete(want, l)
		}
		if c.has(l) != (want[l] > 0) || !maps.Equal(c.all(), want) {
			t.Fatalf("seed %d: %v, expected %v", seed, c.all(), want)
		}
		tables := map[string]bool{}
		for l := range want {
			tables[l.Table] = true
		}
		if most = max(most, len(tables)); len(c.tables) != len(tables) ||
			len(c.tables)+len(c.free) > most {
			t.Fatalf("seed %d: %d tables and %d free numbers, expected %d", seed, len(c.tables),
				len(c.free), len(tables))
		}
	}
}
