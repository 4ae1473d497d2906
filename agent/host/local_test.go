package host

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestFollowLocal: what local routes lead to is with the interfaces, and a change is noticed.
func TestFollowLocal(t *testing.T) {
	l := NewLinks()
	local := map[int][]netip.Prefix{}
	var broken error
	l.routes = func() (map[int][]netip.Prefix, error) { return local, broken }
	l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 1, Name: "lo", Up: true}})
	l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 2, Name: "eth0", Up: true}})
	l.Report(nl.Event{Kind: nl.AddrSet,
		Addr: nl.Addr{Link: 2, Prefix: netip.MustParsePrefix("192.0.2.1/24")}})
	l.Report(nl.Event{Kind: nl.Synced})
	<-l.wake
	inside, own := netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("192.0.2.1")
	follow := func(what string, wake int, mine string) {
		t.Helper()
		if err := l.FollowLocal(); !errors.Is(err, broken) {
			t.Errorf("%s: %v", what, err)
		}
		if len(l.wake) != wake {
			t.Errorf("%s: woken %d", what, len(l.wake))
		}
		for len(l.wake) > 0 {
			<-l.wake
		}
		if got := fmt.Sprint(l.Interfaces()[0].Local, l.IsMe(inside), l.IsMe(own),
			l.HasAddress(inside)); got != mine {
			t.Errorf("%s: %s, want %s", what, got, mine)
		}
	}
	follow("none", 0, "[] false true false")
	local = map[int][]netip.Prefix{1: {netip.MustParsePrefix("203.0.113.0/28")}}
	follow("a route", 1, "[203.0.113.0/28] true true false")
	follow("the same", 0, "[203.0.113.0/28] true true false")
	broken = errors.New("broken")
	follow("not read", 0, "[203.0.113.0/28] true true false")
	broken, local = nil, map[int][]netip.Prefix{}
	follow("none again", 1, "[] false true false")
}

// TestLocalRoutes reads them from the kernel.
func TestLocalRoutes(t *testing.T) {
	n := nstest.New(t).Node("host")
	for _, prefix := range []string{"203.0.113.16/28", "203.0.113.0/28", "203.0.113.0/24"} {
		n.IP("route add local " + prefix + " dev lo")
	}
	if err := n.Do(func() error {
		all, err := localRoutes()
		if got := fmt.Sprint(all); got !=
			"map[1:[203.0.113.0/24 203.0.113.0/28 203.0.113.16/28]]" {
			t.Errorf("%s", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLocalRouteOfLinkThatIsDown: the kernel continues to take packets by a local IPv4 route whose
// interface is down. Rules with me would let them pass if they did not know it.
func TestLocalRouteOfLinkThatIsDown(t *testing.T) {
	lab := nstest.New(t)
	n := lab.Node("host")
	lab.Join(n, "eth0", "192.0.2.1/24", lab.Node("other"), "eth0", "192.0.2.2/24")
	n.IP("route add local 203.0.113.0/28 dev eth0")
	n.IP("link set eth0 down")
	if err := n.Do(func() error {
		all, err := localRoutes()
		if got := fmt.Sprint(all[n.Link("eth0").Index]); got != "[203.0.113.0/28]" {
			t.Errorf("%s", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLocalRoutesEnd: what local routes lead to ends with their interface, and routes are asked
// about again when one is gone or down, or an address is.
func TestLocalRoutesEnd(t *testing.T) {
	inside := netip.MustParseAddr("203.0.113.5")
	up := nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 2, Name: "eth0", Up: true}}
	down := nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 2, Name: "eth0"}}
	address := nl.Addr{Link: 2, Prefix: netip.MustParsePrefix("192.0.2.1/24")}
	pod := nl.Event{Kind: nl.LinkGone, Link: nl.Link{Index: 3}}
	for _, c := range []struct {
		what   string
		events []nl.Event
		asked  int
		mine   bool
	}{
		{"nothing", nil, 0, true},
		{"another name", []nl.Event{{Kind: nl.LinkSet,
			Link: nl.Link{Index: 2, Name: "lan", Up: true}}}, 0, true},
		{"down", []nl.Event{down}, 1, true},
		{"down, with another report", []nl.Event{down, down}, 1, true},
		{"down and up", []nl.Event{down, up}, 1, true},
		{"gone", []nl.Event{{Kind: nl.LinkGone, Link: up.Link}}, 1, false},
		{"an address", []nl.Event{{Kind: nl.AddrSet, Addr: address}}, 0, true},
		{"no address", []nl.Event{{Kind: nl.AddrSet, Addr: address},
			{Kind: nl.AddrGone, Addr: address}}, 1, true},
		{"a pod gone", []nl.Event{pod}, 0, true},
	} {
		l, asked := NewLinks(), 0
		l.routesEnd = func() { asked++ }
		l.routes = func() (map[int][]netip.Prefix, error) {
			return map[int][]netip.Prefix{2: {netip.MustParsePrefix("203.0.113.0/28")}}, nil
		}
		l.Report(up)
		l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 3, Name: "veth1", Up: true}})
		l.AddPod(3, "pod:a")
		l.Report(nl.Event{Kind: nl.Synced})
		if err := l.FollowLocal(); err != nil {
			t.Fatal(err)
		}
		for len(l.wake) > 0 {
			<-l.wake
		}
		for _, e := range c.events {
			l.Report(e)
		}
		if mine := l.IsMe(inside); asked != c.asked || mine != c.mine ||
			!mine && len(l.wake) == 0 {
			t.Errorf("%s: asked %d times, mine %v, woken %d", c.what, asked, mine, len(l.wake))
		}
	}
}
