package host

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// hopEngine records next hops.
type hopEngine struct {
	Engine
	hops []kernel.NextHop
}

func (e *hopEngine) SetNextHops(hops []kernel.NextHop) error {
	e.hops = hops
	return nil
}

func compiled(t *testing.T, rules string) *program.Program {
	t.Helper()
	set, err := rule.ParseFile("", rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rule.Compile(set, rule.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestHops: next hops are found by the routes of the host, and it takes marked packets for its own
// while rules need it.
func TestHops(t *testing.T) {
	lab := nstest.New(t)
	n, far := lab.Node("host"), lab.Node("far")
	lab.Join(n, "eth0", "10.0.0.1/24 fd00::1/64", far, "eth0", "10.0.0.2/24 fd00::2/64")
	n.Route("192.0.2.0/24", "10.0.0.2")
	for _, args := range [][]string{{"route", "add", "blackhole", "192.0.2.9/32"},
		{"route", "add", "198.51.100.0/24", "via", "10.0.0.2", "mtu", "1300"}} {
		n.Run("ip", args...)
	}
	l := n.Link("eth0")
	addr := netip.MustParseAddr
	link, e := uint32(l.Index), new(hopEngine)
	r := NewRoutes(e)
	set := func(rules string) {
		t.Helper()
		if err := n.Do(func() error { return r.setHops(compiled(t, rules)) }); err != nil {
			t.Fatal(err)
		}
	}
	marked := func(want ...bool) {
		t.Helper()
		routes, err := n.Netlink().Routes(hopTable)
		if err != nil {
			t.Fatal(err)
		}
		for i, six := range []bool{false, true} {
			there, err := n.Netlink().HasMarkRule(kernel.FwdMark, hopTable, six)
			has := slices.ContainsFunc(routes, func(r nl.Route) bool {
				return r.Dst == hopRoute(six).Dst
			})
			if err != nil || there != want[i] || has != want[i] {
				t.Errorf("IPv6 %v: rule %v, route %v, %v", six, there, has, err)
			}
		}
	}
	set("add fwd 10.0.0.2 ip from any to any\nadd fwd 192.0.2.1 ip from any to any\n" +
		"add fwd 192.0.2.9 ip from any to any\nadd fwd 203.0.113.1 ip from any to any\n" +
		"add fwd 198.51.100.1 ip from any to any\nadd fwd fd00::2 ip from any to any\n")
	want := []kernel.NextHop{{To: addr("10.0.0.2"), Via: addr("10.0.0.2"), Interface: link},
		{To: addr("192.0.2.1"), Via: addr("10.0.0.2"), Interface: link},
		{To: addr("192.0.2.9"), Via: addr("192.0.2.9")},
		{To: addr("203.0.113.1"), Via: addr("203.0.113.1")},
		{To: addr("198.51.100.1"), Via: addr("10.0.0.2"), Interface: link, MTU: 1300},
		{To: addr("fd00::2"), Via: addr("fd00::2"), Interface: link}}
	if !slices.Equal(e.hops, want) {
		t.Errorf("found %+v", e.hops)
	}
	marked(false, false)
	for range 2 {
		set("add fwd 10.0.0.2 ip from any to any\nadd fwd 10.0.0.2,80 ip from any to any\n")
		marked(true, false)
	}
	set("add fwd ::1 ip from any to any\nadd fwd 10.0.0.1 ip from any to any\n")
	marked(true, true)
	without := compiled(t, "add allow ip from any to any")
	for range 2 {
		if err := n.Do(func() error { return r.RemoveUnusedFwdRouting(without) }); err != nil {
			t.Fatal(err)
		}
		marked(false, false)
	}
}
