package test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// wantInterfaces waits until exactly these interfaces are guarded.
func wantInterfaces(t *testing.T, g *agentNode, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v are guarded", want), func() error {
		var s api.Status
		out, stderr, err := g.try("status", "-j")
		if out == "" {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		unmarshal(t, out, &s)
		var names []string
		for _, i := range s.Interfaces {
			names = append(names, i.Name)
		}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			return fmt.Errorf("guarded: %v", names)
		}
		return nil
	})
}

// TestInterfacesComeAndGo: an interface that matches a glob is guarded as soon as it is there, also
// under a new name, and another one with the same name after it went.
func TestInterfacesComeAndGo(t *testing.T) {
	t.Parallel()
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	g := newAgentNode(t, server)
	g.start("--iface", "eth*", "--rules",
		g.file("my.rules", "add 1 deny icmp from any to any\nadd 2 allow ip from any to any\n"))
	out, _, err := g.try("status")
	if err == nil || !strings.Contains(out, "no interface is guarded") {
		t.Errorf("without an interface: %v\n%s", err, out)
	}
	ping := func(want bool) func() error {
		return func() error {
			err := client.Command("ping", "-c1", "-W1", "10.66.0.1").Run()
			if (err == nil) != want {
				return fmt.Errorf("ping: %v", err)
			}
			return nil
		}
	}
	for range 2 {
		lab.Join(server, "eth5", "10.66.0.1/24", client, "eth0", "10.66.0.2/24")
		wantInterfaces(t, g, "eth5")
		if err := ping(false)(); err != nil {
			t.Error(err)
		}
		link := server.Link("eth5")
		rename(t, server, link.Index, "wan0")
		wantInterfaces(t, g)
		eventually(t, "what is not guarded passes", ping(true))
		rename(t, server, link.Index, "eth6")
		wantInterfaces(t, g, "eth6")
		eventually(t, "rules apply to what is guarded", ping(false))
		if err := server.Netlink().DeleteLink(link.Index); err != nil {
			t.Fatal(err)
		}
		wantInterfaces(t, g)
	}
}

func rename(t *testing.T, n *nstest.Node, index int, name string) {
	t.Helper()
	for _, step := range []error{n.Netlink().SetLinkDown(index),
		n.Netlink().RenameLink(index, name), n.Netlink().SetLinkUp(index)} {
		if step != nil {
			t.Fatal(step)
		}
	}
}

// TestMeFollowsAddresses: a new address of the host is one of "me" at once, and no longer when it
// goes.
func TestMeFollowsAddresses(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules",
		p.file("my.rules", "add 1 allow icmp from any to me\nadd 2 allow icmp from me to any\n"))
	link := p.server.Link("eth0")
	address := netip.MustParsePrefix("10.66.0.77/24")
	ping := func() error { return p.client.Command("ping", "-c1", "-W1", "10.66.0.77").Run() }
	for range 2 {
		if err := p.server.Netlink().AddAddr(link.Index, address); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new address answers", ping)
		out := p.weir("fw", "why", "in via eth0 icmp 10.66.0.2 -> 10.66.0.77")
		if !strings.Contains(out, "is passed by rule 1:") {
			t.Errorf("why says\n%s", out)
		}
		if err := p.server.Netlink().DeleteAddr(link.Index, address); err != nil {
			t.Fatal(err)
		}
		eventually(t, "why knows that the address is gone", func() error {
			if out := p.weir("fw", "why",
				"in via eth0 icmp 10.66.0.2 -> 10.66.0.77"); !strings.Contains(out,
				"is dropped by rule 65535:") {
				return fmt.Errorf("why says\n%s", out)
			}
			return nil
		})
	}
}

// TestMeFollowsLocalRoutes: what a local route leads to is "me", also for the next agent, and no
// longer when the route goes.
func TestMeFollowsLocalRoutes(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	rules := p.file("my.rules", "add 1 allow icmp from any to me\nadd 2 allow icmp from me to any\n")
	route := func(command string) {
		t.Helper()
		mustRun(t, p.server.Command("ip", "route", command, "local", "203.0.113.0/28", "dev", "lo"))
	}
	why := func(to, want string) error {
		if out := p.weir("fw", "why", "in via eth0 icmp 10.66.0.2 -> "+to); !strings.Contains(out,
			want) {
			return fmt.Errorf("why says\n%s", out)
		}
		return nil
	}
	answers := func() error { return ping(p.client, "203.0.113.9") }
	p.client.Route("203.0.113.0/24", "10.66.0.1")
	route("add")
	p.start("--iface", "eth0", "--rules", rules)
	for range 2 {
		if err := errors.Join(answers(), why("203.0.113.9", "is passed by rule 1:"),
			why("203.0.113.16", "is dropped by rule 65535:")); err != nil {
			t.Error(err)
		}
		p.stop()
		p.start("--iface", "eth0", "--rules", rules)
		if err := answers(); err != nil {
			t.Errorf("after a restart: %v", err)
		}
		route("delete")
		eventually(t, "why knows that the route is gone", func() error {
			return why("203.0.113.9", "is dropped by rule 65535:")
		})
		route("add")
		eventually(t, "the address answers again", func() error {
			return ping(p.client, "-W1", "203.0.113.9")
		})
	}
}

// TestReversePathFollowsRoutes: verrevpath asks about the routes as they are now.
func TestReversePathFollowsRoutes(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules",
		p.file("my.rules",
			"add 1 deny ip from any to any not verrevpath in\nadd 2 allow ip from any to any\n"))
	// The client speaks from an address that the server has no route to, then one, then none.
	link := p.client.Link("eth0")
	if err := p.client.Netlink().AddAddr(link.Index,
		netip.MustParsePrefix("192.0.2.5/32")); err != nil {
		t.Fatal(err)
	}
	denied := func() uint64 {
		var r api.Rules
		p.json(&r, "fw", "show", "1")
		return r.Rules[0].Packets
	}
	ping := func() error {
		return p.client.Command("ping", "-I", "192.0.2.5", "-c1", "-W1", "10.66.0.1").Run()
	}
	if before := denied(); ping() == nil || denied() == before {
		t.Error("a packet passes although there is no route back")
	}
	route := nl.Route{Dst: netip.MustParsePrefix("192.0.2.0/24"),
		Via: netip.MustParseAddr("10.66.0.2")}
	if err := p.server.Netlink().AddRoute(route); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the route counts", ping)
	if err := p.server.Netlink().DeleteRoute(route); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its going counts", func() error {
		if before := denied(); ping() == nil || denied() == before {
			return fmt.Errorf("a packet passes")
		}
		return nil
	})
}

// TestTwoNodes: nodes with roots and pins of their own share a machine.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	lab := nstest.New(t)
	a, b := lab.Node("a"), lab.Node("b")
	lab.Join(a, "eth0", "10.66.0.1/24", b, "eth0", "10.66.0.2/24")
	ga, gb := newAgentNode(t, a), newAgentNode(t, b)
	ga.start("--iface", "eth0", "--rules", ga.file("my.rules", "add 1 allow ip from any to any\n"))
	gb.start("--iface", "eth0", "--rules", gb.file("my.rules", "add 2 allow ip from any to any\n"))
	if out := ga.weir("fw", "list"); !strings.HasPrefix(out, "00001 ") {
		t.Errorf("a has the rules\n%s", out)
	}
	gb.weir("down")
	if out := ga.weir("fw", "list"); !strings.HasPrefix(out, "00001 ") {
		t.Errorf("after b went down, a has the rules\n%s", out)
	}
	if err := ping(b, "10.66.0.1"); err != nil {
		t.Error(err)
	}
	var r api.Rules
	ga.json(&r, "fw", "show", "1")
	if r.Rules[0].Packets == 0 {
		t.Error("a counted nothing")
	}
}

// TestTakeoverOfFewerInterfaces: an interface that the next agent does not guard is released.
func TestTakeoverOfFewerInterfaces(t *testing.T) {
	t.Parallel()
	lab := nstest.New(t)
	server, a, b := lab.Node("server"), lab.Node("a"), lab.Node("b")
	lab.Join(server, "eth0", "10.66.1.1/24", a, "eth0", "10.66.1.2/24")
	lab.Join(server, "eth1", "10.66.2.1/24", b, "eth0", "10.66.2.2/24")
	g := newAgentNode(t, server)
	rules := g.file("my.rules", "add 1 deny icmp from any to any\n")
	g.start("--iface", "eth*", "--rules", rules)
	if ping(a, "-W1", "10.66.1.1") == nil || ping(b, "-W1", "10.66.2.1") == nil {
		t.Error("a guarded interface lets a ping through")
	}
	g.kill()
	g.start("--iface", "eth0", "--rules", rules)
	wantInterfaces(t, g, "eth0")
	if ping(a, "-W1", "10.66.1.1") == nil {
		t.Error("eth0 is not guarded any more")
	}
	if err := ping(b, "10.66.2.1"); err != nil {
		t.Errorf("eth1 is still guarded: %v", err)
	}
}
