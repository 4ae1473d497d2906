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
			l.IsMine(inside)); got != mine {
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
		if out, err := n.Command("ip", "route", "add", "local", prefix, "dev",
			"lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
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
