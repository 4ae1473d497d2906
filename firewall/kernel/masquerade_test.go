package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
)

// within is the reference of prefixSet.holds.
func within(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if o.Bits() <= p.Bits() && o.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// randomPrefixes returns prefixes of both families, of which some lie in others.
func randomPrefixes(random *rand.Rand, n int) (all []netip.Prefix) {
	for range n {
		a := netip.AddrFrom4([4]byte{10, byte(random.IntN(3)), byte(random.IntN(3)), 1})
		bits := random.IntN(33)
		if random.IntN(2) == 0 {
			a = netip.AddrFrom16([16]byte{0xfd, byte(random.IntN(3)), byte(random.IntN(3))})
			bits = random.IntN(129)
		}
		all = append(all, netip.PrefixFrom(a, bits))
	}
	return all
}

func TestPrefixSet(t *testing.T) {
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	held := 0
	for range 3000 {
		all := randomPrefixes(random, random.IntN(5))
		set := setOf(all)
		for _, p := range randomPrefixes(random, 5) {
			if got, want := set.holds(p), within(p, all); got != want {
				t.Fatalf("%v in %v: %v, want %v", p, all, got, want)
			}
			held += int(bit(set.holds(p)))
		}
	}
	if held == 0 {
		t.Error("no prefix lay in another one")
	}
}

// TestMasqueradeChanges: whatever was set before, the map has what a new engine writes.
func TestMasqueradeChanges(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	content := func(t *testing.T, e *Engine) map[weirTableKey]weirMaskedSource {
		t.Helper()
		all, err := readAll[weirTableKey, weirMaskedSource](e.objects.MaskedSources)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	often := newEngineWith(t, firewall.DefaultOptions())
	for i := range 10 {
		m := forward.Masquerade{Sources: randomPrefixes(random, 3),
			Except: randomPrefixes(random, 20), Near: randomPrefixes(random, 3),
			Ports: []forward.PortRange{{First: 1024, Last: 2047}}}
		if err := often.SetMasquerade(m); err != nil {
			t.Fatal(err)
		}
		// Each round is a test of its own: when it ends, the next one has its maps, made as new.
		t.Run(fmt.Sprint("change", i), func(t *testing.T) {
			once := newEngineWith(t, firewall.DefaultOptions())
			if err := once.SetMasquerade(m); err != nil {
				t.Fatal(err)
			}
			got, want := content(t, often), content(t, once)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("after changes %v, at once %v", got, want)
			}
		})
	}
}

// TestMasqueradeThatDoesNotFit: what a call that failed has left in the map is gone after the next.
func TestMasqueradeThatDoesNotFit(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	e, err := openShared(t, Config{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer e.Close()
	own := netip.MustParsePrefix("10.63.0.0/24")
	m := forward.Masquerade{Sources: []netip.Prefix{own},
		Ports: []forward.PortRange{{First: 1024, Last: 2047}}}
	if err := e.SetMasquerade(m); err != nil {
		t.Fatal(err)
	}
	for i := range e.objects.MaskedSources.MaxEntries() {
		a := netip.AddrFrom4([4]byte{10, 64 + byte(i>>16), byte(i >> 8), byte(i)})
		m.Except = append(m.Except, netip.PrefixFrom(a, 32))
	}
	if err := e.SetMasquerade(m); err == nil {
		t.Error("more fits than the map holds")
	}
	m.Except = nil
	if err := e.SetMasquerade(m); err != nil {
		t.Fatal(err)
	}
	held, err := readAll[weirTableKey, weirMaskedSource](e.objects.MaskedSources)
	if _, there := held[trieKey(own)]; err != nil || len(held) != 1 || !there {
		t.Errorf("%d entries are left, %v", len(held), err)
	}
}

// BenchmarkSetMasquerade adds one range to those of a thousand hosts.
func BenchmarkSetMasquerade(b *testing.B) {
	nstest.RequireRoot(b)
	e, err := openShared(b, Config{Options: firewall.DefaultOptions()})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	defer e.Close()
	own := netip.MustParsePrefix("10.63.0.0/24")
	m := forward.Masquerade{Sources: []netip.Prefix{own}, Except: []netip.Prefix{own},
		Ports: []forward.PortRange{{First: 1024, Last: 2047}}}
	for i := range 1001 {
		m.Except = append(m.Except,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64 + byte(i>>8), byte(i), 0}), 24))
	}
	with, without := m, m
	without.Except = m.Except[:1001]
	for b.Loop() {
		for _, m := range []forward.Masquerade{without, with} {
			if err := e.SetMasquerade(m); err != nil {
				b.Fatal(err)
			}
		}
	}
}
