package host

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/pod"
)

// TestRangesOfOthers: a range that overlaps a network of another interface is refused, whichever
// of the two holds the other; the node's own addresses and those of pods are none.
func TestRangesOfOthers(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		link  nl.Link
		addr  string
		clash bool
	}{
		{nl.Link{Name: "eth0"}, "10.88.0.7/24", true},
		{nl.Link{Name: "eth0"}, "10.88.0.7/26", true},
		{nl.Link{Name: "eth0"}, "10.88.0.7/16", true},
		{nl.Link{Name: "eth0"}, "10.88.0.7/32", true},
		{nl.Link{Name: "br-1"}, "fd00:88::7/64", true},
		{nl.Link{Name: "eth0"}, "fd00:88::7/120", true},
		{nl.Link{Name: "eth0"}, "10.88.1.7/24", false},
		{nl.Link{Name: "eth0"}, "fe80::1/64", false},
		{nl.Link{Name: "lo", Loopback: true}, "10.88.0.1/32", false},
		{nl.Link{Name: "lo", Loopback: true}, "10.88.0.1/24", true},
		{nl.Link{Name: "weir0"}, "10.88.0.1/32", false},
		{nl.Link{Name: "weir0"}, "10.88.0.1/24", true},
		{nl.Link{Name: "weir01234567", Alias: pod.AliasPrefix + "c/eth0"}, "fd00:88::1/128", false},
	} {
		l := NewLinks()
		one.link.Index = 3
		l.Report(nl.Event{Kind: nl.LinkSet, Link: one.link})
		l.Report(nl.Event{Kind: nl.AddrSet,
			Addr: nl.Addr{Link: 3, Prefix: netip.MustParsePrefix(one.addr)}})
		ranges := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"),
			netip.MustParsePrefix("fd00:88::/120")}
		if err := l.CheckRanges(ranges, "weir0"); (err != nil) != one.clash {
			t.Errorf("%s %s: %v", one.link.Name, one.addr, err)
		}
	}
}

// TestRangesAndAdvertisements: who sends router advertisements for the range of pods does not keep
// a node that has it from adding pods. A node that begins is refused the range.
func TestRangesAndAdvertisements(t *testing.T) {
	lab := nstest.New(t)
	node, other := lab.Node("node"), lab.Node("other")
	lab.Join(node, "wire", "10.98.0.1/24", other, "wire", "10.98.0.2/24")
	ranges := []netip.Prefix{netip.MustParsePrefix("fd00:88::/120")}
	add := func(address string) {
		t.Helper()
		node.IP("address replace dev wire nodad " + address)
	}
	for _, one := range []struct {
		network         string
		begin           func()
		running, begins bool
	}{
		{"fd00:88::/64", func() { add("fd00:88::7/64") }, false, false},
		{"fd00:88::/64", func() {
			advertise(t, other, "wire", prefixOption("fd00:88::/64")...)
		}, true, false},
		{"fd00:99::/64", func() { add("fd00:99::7/64") }, true, true},
	} {
		var all []nl.Addr
		nstest.Eventually(t, "an address in "+one.network, func() (there bool) {
			one.begin() // again: an advertisement is lost before the link is ready
			var err error
			if all, err = node.Netlink().Addrs(0); err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(all, func(a nl.Addr) bool {
				return a.Prefix.Masked().String() == one.network
			})
		})
		l := NewLinks()
		for _, a := range all {
			a.Tentative = false // as it is until the link is ready
			l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: a.Link, Name: "wire"}})
			l.Report(nl.Event{Kind: nl.AddrSet, Addr: a})
		}
		if err := l.CheckRanges(ranges, ""); (err == nil) != one.running {
			t.Errorf("%s: a node that runs: %v", one.network, err)
		}
		if err := node.Do(func() error { return l.RangesFree(ranges, "") }); (err == nil) !=
			one.begins {
			t.Errorf("%s: a node that begins: %v", one.network, err)
		}
		node.IP("-6 address flush dev wire scope global")
	}
}

// prefixOption is the option of a router advertisement for a prefix (RFC 4861, section 4.6.2) from
// which hosts make addresses, for 1,800 s.
func prefixOption(prefix string) []byte {
	p := netip.MustParsePrefix(prefix)
	return slices.Concat([]byte{3, 4, byte(p.Bits()), 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0},
		p.Addr().AsSlice())
}

// TestRoutesOfOthers: so is one with a route to it, or into it; wider routes do not matter.
func TestRoutesOfOthers(t *testing.T) {
	lab := nstest.New(t)
	node, other := lab.Node("node"), lab.Node("other")
	lab.Join(node, "wire", "10.98.0.1/24 fd98::1/64", other, "wire", "10.98.0.2/24 fd98::2/64")
	l := NewLinks()
	all, err := node.Netlink().Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range all {
		l.Report(nl.Event{Kind: nl.LinkSet, Link: link})
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"),
		netip.MustParsePrefix("fd00:88::/120")}
	for _, one := range []struct {
		args  []string
		clash bool
	}{
		{[]string{"10.0.0.0/8", "via", "10.98.0.2"}, false},
		{[]string{"0.0.0.0/1", "dev", "wire"}, false},
		{[]string{"default", "via", "10.98.0.2"}, false},
		{[]string{"blackhole", "10.88.0.0/24"}, false},
		{[]string{"10.88.1.0/24", "via", "10.98.0.2"}, false},
		{[]string{"10.88.0.0/24", "via", "10.98.0.2"}, true},
		{[]string{"10.88.0.128/25", "dev", "wire"}, true},
		{[]string{"10.88.0.9", "dev", "wire"}, true},
		{[]string{"fd00:88::/120", "via", "fd98::2"}, true},
		{[]string{"fd00:88::/64", "via", "fd98::2"}, false},
	} {
		for _, do := range []string{"add", "del"} {
			node.Run("ip", append([]string{"route", do}, one.args...)...)
			err := node.Do(func() error { return l.checkRoutes(ranges, "") })
			if clash := one.clash && do == "add"; (err != nil) != clash {
				t.Errorf("%v, %s: %v", one.args, do, err)
			}
		}
	}
}
