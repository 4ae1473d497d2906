package enginetest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// RunRouter sends to the addresses that routers of a network have beside their own. They are the
// host's where it is a router, as the kernel takes these packets.
func RunRouter(t *testing.T, e Subject) {
	t.Helper()
	const rules = "add 1 deny ip from any to me\nadd 2 allow ip from any to any"
	if err := e.Load(replaceProgram(t, rules)); err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Prefix{netip.MustParsePrefix("2001:db8::5/64"),
		netip.MustParsePrefix("2001:db8:2::3/127"), netip.MustParsePrefix("10.0.0.1/24")}
	for _, c := range []struct {
		router bool
		to     string
		pass   bool
	}{
		{false, "2001:db8::", true}, {true, "2001:db8::", false}, {true, "2001:db8::5", false},
		{true, "2001:db8::6", true}, {true, "2001:db8:2::2", true}, {true, "10.0.0.0", true},
		{false, "2001:db8::", true},
	} {
		if err := e.SetInterfaces([]firewall.Interface{{Index: 1, Name: "eth0", Addrs: addrs,
			Router6: c.router}}); err != nil {
			t.Fatal(err)
		}
		if v := comesIn(t, e, c.to); v.Pass != c.pass {
			t.Errorf("router %t, to %s: %+v", c.router, c.to, v)
		}
	}
}

// RunLocalRoutes sends to addresses to which local routes lead, and to others. They are the host's
// while the routes are there.
func RunLocalRoutes(t *testing.T, e Subject) {
	t.Helper()
	const rules = "add 1 deny ip from any to me\nadd 2 allow ip from any to any"
	if err := e.Load(replaceProgram(t, rules)); err != nil {
		t.Fatal(err)
	}
	all := func(list ...string) (all []netip.Prefix) {
		for _, p := range list {
			all = append(all, netip.MustParsePrefix(p))
		}
		return all
	}
	for _, c := range []struct {
		local    []netip.Prefix
		mine, no []string
	}{
		{nil, []string{"192.0.2.1"}, []string{"203.0.113.5", "2001:db8:a::5"}},
		{all("203.0.113.0/28", "2001:db8:a::/64"),
			[]string{"192.0.2.1", "203.0.113.0", "203.0.113.15", "2001:db8:a::", "2001:db8:a::5",
				"2001:db8:a:0:ffff:ffff:ffff:ffff"},
			[]string{"203.0.113.16", "203.0.112.255", "2001:db8:a:1::", "192.0.2.2",
				"2001:db8:9::"}},
		{all("203.0.113.5/32", "2001:db8:a::5/128"), []string{"203.0.113.5", "2001:db8:a::5"},
			[]string{"203.0.113.4", "2001:db8:a::4"}},
		{all("0.0.0.0/0"), []string{"192.0.2.2", "203.0.113.5"}, []string{"2001:db8:a::5"}},
		{all("203.0.113.7/28", "203.0.113.0/24"), []string{"203.0.113.200"},
			[]string{"203.0.114.0"}},
		{nil, []string{"192.0.2.1"}, []string{"203.0.113.5", "2001:db8:a::5", "203.0.113.0"}},
	} {
		if err := e.SetInterfaces([]firewall.Interface{{Index: 1, Name: "lo", Local: c.local},
			{Index: 2, Name: "eth0", Addrs: all("192.0.2.1/24")}}); err != nil {
			t.Fatal(err)
		}
		for _, to := range c.mine {
			if v := comesIn(t, e, to); v.Pass {
				t.Errorf("%v: %s is not me: %+v", c.local, to, v)
			}
		}
		for _, to := range c.no {
			if v := comesIn(t, e, to); !v.Pass {
				t.Errorf("%v: %s is me: %+v", c.local, to, v)
			}
		}
	}
}

// comesIn evaluates a datagram that comes in to an address.
func comesIn(t *testing.T, e Subject, to string) firewall.Verdict {
	t.Helper()
	dst := netip.MustParseAddr(to)
	var head build.Layer = build.IPv6{Src: netip.MustParseAddr("2001:db8:f::1"), Dst: dst}
	if dst.Is4() {
		head = build.IPv4{Src: netip.MustParseAddr("198.51.100.1"), Dst: dst}
	}
	b, err := build.Packet(head, build.UDP{SrcPort: 4000, DstPort: 53})
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.Evaluate(&firewall.Input{Now: time.Second, Hook: firewall.Hook{Recv: 1}}, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
