package host

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/testrand"
)

// TestLinksFollow compares the list that links keeps with one that is made from all that is known,
// after each of many events in any order.
func TestLinksFollow(t *testing.T) {
	l, g := NewLinks(), rand.New(rand.NewPCG(testrand.Seed(t), 0))
	for n := range 5000 {
		index := 1 + g.IntN(12)
		switch g.IntN(6) {
		case 0:
			l.Report(nl.Event{Kind: nl.LinkSet,
				Link: nl.Link{Index: index, Name: fmt.Sprint("if", g.IntN(3)), Up: true}})
		case 1:
			l.Report(nl.Event{Kind: nl.LinkGone, Link: nl.Link{Index: index}})
		case 2, 3:
			kind := []nl.EventKind{nl.AddrSet, nl.AddrGone}[g.IntN(2)]
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(g.IntN(3))}), 24)
			l.Report(nl.Event{Kind: kind, Addr: nl.Addr{Link: index, Prefix: prefix}})
		case 4:
			l.AddPod(uint32(index), fmt.Sprint("pod:", index))
		case 5:
			l.ExpectRemoval(uint32(index))
		}
		var want []firewall.Interface
		for i := range 13 {
			link, there := l.byID[i]
			p, isPod := l.pods[i]
			if !there && (!isPod || p.leaving) {
				continue
			}
			name := link.Name
			if isPod {
				name = p.name
			}
			want = append(want, firewall.Interface{Index: uint32(i), Name: name, Addrs: l.addrs[i]})
		}
		same := func(a, b firewall.Interface) bool {
			return a.Index == b.Index && a.Name == b.Name && slices.Equal(a.Addrs, b.Addrs)
		}
		if got := l.Interfaces(); !slices.EqualFunc(got, want, same) {
			t.Fatalf("after event %d: %v, want %v", n, got, want)
		}
	}
}

// TestLinksListedAgain: what a listing does not report is gone, and what may be another interface
// is to be looked at again.
func TestLinksListedAgain(t *testing.T) {
	l := NewLinks()
	set := func(index int, name, alias string) {
		l.Report(nl.Event{Kind: nl.LinkSet,
			Link: nl.Link{Index: index, Name: name, Alias: alias, Up: true}})
	}
	set(1, "lo", "")
	set(2, "eth0", "")
	set(3, "weir12345678", "weir:a/eth0")
	l.Report(nl.Event{Kind: nl.Synced})
	if all := l.takeRemade(); len(all) != 0 {
		t.Errorf("at first: %v", all)
	}
	alias := func(want string) func(string) bool { return func(a string) bool { return a == want } }
	if l.ByAlias(0, "weir12345678", alias("weir:a/eth0")) != 3 ||
		l.ByAlias(2, "weir12345678", alias("weir:a/eth0")) != 3 ||
		l.ByAlias(3, "weir12345678", alias("weir:b/eth0")) != 0 {
		t.Error("the interface of a pod is not found by its alias")
	}
	set(3, "renamed", "weir:a/eth0")
	if l.ByAlias(3, "weir12345678", alias("weir:a/eth0")) != 3 {
		t.Error("the renamed interface of a pod is not found by its index")
	}
	l.Report(nl.Event{Kind: nl.LinkGone, Link: nl.Link{Index: 2}})
	set(2, "eth0", "")
	if all := l.takeRemade(); len(all) != 1 || !all[2] {
		t.Errorf("after eth0 was made again: %v", all)
	}
	l.listAgain()
	set(1, "lo", "")
	set(2, "eth0", "")
	l.Report(nl.Event{Kind: nl.Synced})
	if all := l.Interfaces(); len(all) != 2 {
		t.Errorf("listed: %v", all)
	}
	if all := l.takeRemade(); !all[2] || !all[3] {
		t.Errorf("after news were lost: %v", all)
	}
}

// TestLinksWithOtherFrames: an interface whose frames change, as those of a bond do with its first
// port, is to be looked at again although its name stays. Any other change of it is nothing new.
func TestLinksWithOtherFrames(t *testing.T) {
	l := NewLinks()
	l.sources = func(string) (bool, firewall.ReversePath) { return false, 0 }
	bond := nl.Link{Index: 2, Name: "bond0", Up: true, Encap: "ether", MTU: 1500}
	l.Report(nl.Event{Kind: nl.LinkSet, Link: bond})
	l.Report(nl.Event{Kind: nl.Synced})
	<-l.wake
	for _, c := range []struct {
		what   string
		change func()
		new    bool
	}{
		{"MTU", func() { bond.MTU = 9000 }, false},
		{"type", func() { bond.Encap = "infiniband" }, true},
		{"same", func() {}, false},
		{"type of a tunnel", func() { bond.Encap = "gre" }, true},
		{"no remote address", func() { bond.NoRemote = true }, true},
	} {
		c.change()
		l.Report(nl.Event{Kind: nl.LinkSet, Link: bond})
		if all := l.takeRemade(); all[2] != c.new || len(l.wake) == 1 != c.new {
			t.Errorf("%s: to be looked at: %v, woken: %v", c.what, all, len(l.wake))
		}
		if len(l.wake) == 1 {
			<-l.wake
		}
	}
}
