package peers

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/overlay"
)

// TestClosedBesides compares what a change closes and opens with the difference of whole lists, on
// random peers that share ranges, with and without encryption.
func TestClosedBesides(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	p := &Service{recorded: recorded{byName: map[string]overlay.Peer{},
		held: map[string][]netip.Prefix{}}}
	compare := func(of, other recorded, name string) (n int) {
		t.Helper()
		want := without(of.closedRanges(), other.closedRanges())
		got := of.closedBesides(other, name)
		slices.SortFunc(want, netip.Prefix.Compare)
		slices.SortFunc(got, netip.Prefix.Compare)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Fatalf("%s: %v, want %v\nfrom %+v\nto %+v", name, got, want, of, other)
		}
		return len(got)
	}
	closed, opened := 0, 0
	for range 20_000 {
		peer := overlay.Peer{Name: fmt.Sprint("p", random.IntN(5)),
			Unencrypted: random.IntN(3) == 0}
		for range 1 + random.IntN(3) {
			bits := 22 + random.IntN(3)
			a := netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(8)), 0})
			peer.Pods = append(peer.Pods, netip.PrefixFrom(a, bits).Masked())
		}
		var next recorded
		old, there := p.byName[peer.Name]
		switch {
		case random.IntN(3) > 0:
			next = p.plus(peer)
		case there:
			next = p.minus(old, random.IntN(2) == 0)
		default:
			next = p.minus(overlay.Peer{Name: peer.Name, Pods: p.held[peer.Name]}, true)
		}
		closed += compare(next, p.recorded, peer.Name)
		opened += compare(p.recorded, next, peer.Name)
		p.recorded = next
	}
	if closed == 0 || opened == 0 {
		t.Errorf("%d ranges were closed, %d opened", closed, opened)
	}
}
