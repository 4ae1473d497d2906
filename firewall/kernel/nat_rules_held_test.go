package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

// TestNATConflictOfAddresses: an interface that gets the address of another instance keeps nothing
// else of the host's interfaces back, and no port that is free.
func TestNATConflictOfAddresses(t *testing.T) {
	t.Parallel()
	const rules = "nat 1 config if eth0 redirect_port tcp 10.0.5.9:80 8080 " +
		"redirect_port tcp 10.0.5.9:80 8081\n" +
		"nat 2 config ip 192.0.2.9 redirect_port tcp 10.0.5.9:81 8080\n" +
		"add 10 nat 2 ip from 10.0.5.77 to any out via eth0\n" +
		"add 20 nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n"
	g := newNATRuleGateway(t, rules)
	l := g.host.Link("eth0")
	g.must(g.host.Netlink().AddAddr(l.Index, netip.MustParsePrefix("192.0.2.9/32")))
	g.setAddrs("192.0.2.9/32", "192.0.2.1/24")
	if err := g.engine.FollowNAT(); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a port of two instances: %v", err)
	}
	if err := exchange(g.outside, "192.0.2.9:8081"); err != nil {
		t.Errorf("a port of one instance: %v", err)
	}
	g.load("add 1 count ip from any to any\n" + rules) // as a trial that goes back
	g.setAddrs("192.0.2.1/24", "192.0.2.9/32")
	g.must(g.engine.FollowNAT())
	if err := exchange(g.outside, "192.0.2.1:8080"); err != nil {
		t.Error(err)
	}
}

// setAddrs gives the engine other addresses of eth0.
func (g *gateway) setAddrs(addrs ...string) {
	g.t.Helper()
	for i := range g.ifs {
		if g.ifs[i].Name == "eth0" {
			g.ifs[i].Addrs = nil
			for _, a := range addrs {
				g.ifs[i].Addrs = append(g.ifs[i].Addrs, netip.MustParsePrefix(a))
			}
		}
	}
	g.must(g.engine.SetInterfaces(g.ifs))
}

// TestNATInPlaceOfForward: a start is not refused because the settings of the agent before have the
// port that the rules redirect now. Once they do not, the rules have it.
func TestNATInPlaceOfForward(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, openRules)
	g.must(g.engine.SetForwards([]forward.Published{{Proto: 6,
		Host: netip.MustParseAddrPort("192.0.2.1:8080"),
		Pod:  netip.MustParseAddrPort("10.0.5.9:80")}}))
	g.must(exchange(g.outside, "192.0.2.1:8080"))
	g.must(g.engine.Close())
	g.open()
	g.must(g.engine.SetInterfaces(g.ifs))
	g.load(natRuleFiles["one rule"])
	if err := g.engine.FollowNAT(); err == nil {
		t.Error("two have one port")
	}
	g.must(g.engine.SetForwards(nil))
	g.must(g.engine.FollowNAT())
	g.must(exchange(g.outside, "192.0.2.1:8080"))
}

// reopen has another engine take over, which knows no settings yet.
func (g *gateway) reopen() {
	g.t.Helper()
	g.must(g.engine.Close())
	g.open()
	g.must(g.engine.SetInterfaces(g.ifs))
}

// TestNATTargetBecomesOwn: a redirection to what is an address of the host now is held, and keeps
// neither a start nor the others back. Once it is none any more, the port is redirected.
func TestNATTargetBecomesOwn(t *testing.T) {
	t.Parallel()
	rules := natRuleFiles["one rule"] + "nat 1 config if eth0 redirect_port tcp 10.0.5.9:80 8080 " +
		"redirect_port tcp 10.0.5.1:80 8081\n"
	g := newNATRuleGateway(t, openRules)
	g.reopen()
	g.load(rules)
	if err := g.engine.FollowNAT(); err == nil || !strings.Contains(err.Error(),
		"10.0.5.1 is an address of this host") {
		t.Errorf("redirected to the host: %v", err)
	}
	g.outgoing("beside it")
	g.must(exchange(g.outside, "192.0.2.1:8080"))
	g.load("add 1 count ip from any to any\n" + rules)
	inside := netip.MustParseAddr("10.0.5.1")
	for i := range g.ifs {
		for n, p := range g.ifs[i].Addrs {
			if p.Addr() == inside {
				g.ifs[i].Addrs = append(g.ifs[i].Addrs[:n:n], g.ifs[i].Addrs[n+1:]...)
				break
			}
		}
	}
	g.must(g.engine.SetInterfaces(g.ifs))
	g.must(g.engine.FollowNAT())
	if n := len(g.engine.published); n != 2 {
		t.Errorf("%d ports are redirected", n)
	}
}

// TestNATTargetOfALocalRoute: a redirection to what a local route of the host leads to is held, as
// to an address of the host.
func TestNATTargetOfALocalRoute(t *testing.T) {
	ifs := []firewall.Interface{{Index: 1, Name: "lo",
		Local: []netip.Prefix{netip.MustParsePrefix("10.0.6.0/24")}}}
	for to, is := range map[string]bool{"10.0.6.9:80": true, "10.0.7.9:80": false} {
		r, err := newNATEntries([]program.NAT{{Number: 1, Addr: netip.MustParseAddr("192.0.2.1"),
			Ports: []program.NATPort{{Proto: uint8(packet.ProtoTCP), Port: 8080, Count: 1,
				To: netip.MustParseAddrPort(to)}}}}, ifs)
		if (err != nil) != is || (len(r.ports) == 0) != is {
			t.Errorf("%s: %v, %d ports", to, err, len(r.ports))
		}
	}
}

// TestNATOnlyAddressStays: the only address of an interface is not given away by rules that were in
// force when it had another one.
func TestNATOnlyAddressStays(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, openRules)
	g.serve(g.host, 90)
	g.reopen()
	g.load("nat 1 config if eth0 redirect_addr 10.0.5.9 192.0.2.1\n" +
		"add nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n")
	if err := g.engine.FollowNAT(); err == nil || !strings.Contains(err.Error(),
		"192.0.2.1 is the only address") {
		t.Errorf("given away: %v", err)
	}
	g.must(exchange(g.outside, "192.0.2.1:90"))
	g.outgoing("behind it")
}

// TestNATReturns: rules that were in force before are not refused because a port of theirs was
// given away meanwhile.
func TestNATReturns(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, openRules)
	g.must(g.engine.SetForwards([]forward.Published{{Proto: 6,
		Host: netip.MustParseAddrPort("192.0.2.1:8080"),
		Pod:  netip.MustParseAddrPort("10.0.5.9:80")}}))
	p := compile(t, natRuleFiles["one rule"])
	if err := g.engine.Load(p); err == nil {
		t.Error("two have one port")
	}
	p.Returns = true
	g.must(g.engine.Load(p))
	if err := g.engine.FollowNAT(); err == nil || !strings.Contains(err.Error(), "[[forward]]") {
		t.Errorf("held: %v", err)
	}
	g.outgoing("beside it")
	g.must(g.engine.SetForwards(nil))
	g.must(g.engine.FollowNAT())
	g.must(exchange(g.outside, "192.0.2.1:8080"))
}

// TestNATManyPorts: rules whose ports do not fit into the map beside those of now change nothing,
// also at a start, where an earlier engine has written these.
func TestNATManyPorts(t *testing.T) {
	t.Parallel()
	rules := natRuleFiles["one rule"]
	g := newNATRuleGateway(t, rules)
	var all []forward.Published
	for port := range uint16(40_000) {
		all = append(all, forward.Published{Proto: 132,
			Host: netip.AddrPortFrom(hostAddr, 1+port),
			Pod:  netip.AddrPortFrom(serverFour, 1+port)})
	}
	g.must(g.engine.SetForwards(all))
	many := compile(t, "nat 1 config if eth0 redirect_port tcp 10.0.5.9:1024-33791 1024-33791\n"+
		"add nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n")
	for _, when := range []string{"later", "at a start"} {
		if err := g.engine.Load(many); err == nil {
			t.Errorf("%s: more than fits", when)
		}
		g.outgoing(when)
		g.must(exchange(g.outside, "192.0.2.1:8080"))
		g.reopen()
	}
	g.load(rules)
	g.must(exchange(g.outside, "192.0.2.1:8080"))
}

// TestNATBeforeRules: settings that come before the first rules take nothing of what an engine
// before has written for rules with nat, which are in force.
func TestNATBeforeRules(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, "nat 1 config ip 192.0.2.1 redirect_port tcp 10.0.5.9:80 8080 "+
		"redirect_addr 10.0.5.9 192.0.2.9\nadd nat 1 ip from any to any via eth0\n"+
		"add allow ip from any to any via eth1\n")
	l := g.host.Link("eth0")
	g.must(g.host.Netlink().AddAddr(l.Index, netip.MustParsePrefix("192.0.2.9/32")))
	g.outgoing("before")
	g.must(g.engine.Close())
	g.open()
	g.must(g.engine.SetForwards(nil))
	g.must(g.engine.SetMasquerade(forward.Masquerade{
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}))
	g.must(reach(g.server, "192.0.2.2:80"))
	g.must(exchange(g.outside, "192.0.2.1:8080"))
	if f := g.engine.forwarding; f.Masquerade != masqueradeWhole|masqueradeNATRule ||
		f.Sources == 0 {
		t.Errorf("forwarding %+v", f)
	}
}
