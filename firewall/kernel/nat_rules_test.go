package kernel

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
)

// newNATRuleGateway is a gateway whose rules translate for the server: no setting does.
func newNATRuleGateway(t *testing.T, rules string) *gateway {
	g := newGateway(t, openRules)
	g.must(g.engine.SetMasquerade(forward.Masquerade{
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}))
	g.load(rules)
	g.serve(g.outside, 80)
	g.serve(g.server, 80)
	return g
}

func (g *gateway) load(rules string) {
	g.t.Helper()
	g.must(g.engine.Load(compile(g.t, rules)))
}

// datagrams exchanges one that takes several fragments.
func datagrams(from *nstest.Node, to string) error {
	u, err := from.DialContext(context.Background(), "udp4", to)
	if err != nil {
		return err
	}
	defer u.Close()
	return echoWord(u, strings.Repeat("much to say ", 400))
}

// outgoing is what a host behind a rule with nat does.
func (g *gateway) outgoing(when string) {
	g.t.Helper()
	g.succeed(when, map[string]error{
		"tcp and udp":   reach(g.server, "192.0.2.2:80"),
		"fragments":     datagrams(g.server, "192.0.2.2:80"),
		"icmp":          ping(g.server, "192.0.2.2"),
		"path too long": ping(g.server, "-s3000", "192.0.2.2"),
	})
}

// The rule sets of files that use nat. In each the server reaches the outside, and the outside
// reaches the server at port 8080 of the host.
var natRuleFiles = map[string]string{
	"one rule": "nat 1 config if eth0 same_ports reset redirect_port tcp 10.0.5.9:80 8080 " +
		"redirect_port udp 10.0.5.9:80 8080\n" +
		"add nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n",
	"one for each direction": "nat 1 config ip 192.0.2.1 redirect_port tcp 10.0.5.9:80 8080 " +
		"redirect_port udp 10.0.5.9:80 192.0.2.1:8080\n" +
		"add nat 1 ip from 10.0.0.0/8 to any out via eth0\n" +
		"add nat 1 ip from any to 192.0.2.1 in via eth0\nadd allow ip from me to any out\n" +
		"add allow ip from any to any via eth1\n",
	"me": "nat 1 config if eth0 unreg_only redirect_port tcp 10.0.5.9:80 8080 redirect_port udp " +
		"10.0.5.9:80 8080\nadd nat 1 ip from any to me in recv eth0\n" +
		"add nat 1 ip from any to any out xmit eth0\nadd allow ip from any to any via eth1\n",
	// as rc.firewall's type simple: inner addresses are refused on the wire
	"simple": "nat 123 config log if eth0 redirect_port tcp 10.0.5.9:80 8080 redirect_port udp " +
		"10.0.5.9:80 8080\nadd deny ip from any to 10.0.0.0/8 via eth0\n" +
		"add nat 123 ip4 from any to any via eth0\n" +
		"add deny ip from 10.0.0.0/8 to any via eth0\nadd allow ip from any to any via eth1\n",
	"deny_in": "nat 1 config if eth0 deny_in redirect_port tcp 10.0.5.9:80 8080 redirect_port udp " +
		"10.0.5.9:80 8080\n" +
		"add nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n",
	// as the handbook's
	"one_pass": "disable one_pass\nnat 1 config if eth0 redirect_port tcp 10.0.5.9:80 8080 " +
		"redirect_port udp 10.0.5.9:80 8080\n" +
		"add 10 allow ip from any to any via eth1\n" +
		"add 50 deny ip from any to 10.0.0.0/8 in via eth0\n" +
		"add 100 nat 1 ip from any to any in via eth0\nadd 101 check-state\n" +
		"add 120 skipto 1000 ip from 10.0.0.0/8 to any out via eth0 keep-state\n" +
		"add 130 allow ip from me to any out via eth0 keep-state\n" +
		"add 140 allow ip from any to 10.0.5.9 80 in via eth0 keep-state\n" +
		"add 999 deny ip from any to any\n" +
		"add 1000 nat 1 ip from any to any out via eth0\nadd 1001 allow ip from any to any\n",
}

// TestNATRules: what ipfw's files with nat say works as it is.
func TestNATRules(t *testing.T) {
	t.Parallel()
	for name, rules := range natRuleFiles {
		t.Run(name, func(t *testing.T) {
			g := newNATRuleGateway(t, rules)
			g.serve(g.host, 90)
			g.outgoing("behind the host")
			g.succeed("with nat", map[string]error{
				"redirected":             reach(g.outside, "192.0.2.1:8080"),
				"redirected, fragments":  datagrams(g.outside, "192.0.2.1:8080"),
				"the host":               reach(g.host, "192.0.2.2:80"),
				"the host to the server": reach(g.host, "10.0.5.9:80"),
				"the server to the host": exchange(g.server, "10.0.5.1:90"),
			})
			c, err := dialFrom(g.outside, "192.0.2.1:8080", testTimeout)
			g.must(err)
			defer c.Close()
			if err := echoText(c, strings.Repeat("much to say ", 40_000)); err != nil {
				t.Errorf("much to the server: %v", err)
			}
			open := name != "deny_in" && name != "one_pass"
			if err := exchangeFor(g.outside, "192.0.2.1:90",
				waitTime(open)); (err == nil) != open {
				t.Errorf("a port of the host itself: %v", err)
			}
		})
	}
}

// TestNATOnlyByRule: an instance that no rule names translates nothing, nor does one whose rule
// does not match; one that is missing lets nothing pass.
func TestNATOnlyByRule(t *testing.T) {
	t.Parallel()
	const config = "nat 1 config if eth0 redirect_port tcp 10.0.5.9:80 8080\n"
	g := newNATRuleGateway(t, config+"add allow ip from any to any\n")
	for name, rules := range map[string]string{
		"no rule":   config + "add allow ip from any to any\n",
		"no config": "add nat 1 ip from any to any via eth0\nadd allow ip from any to any\n",
		"another source": config + "add nat 1 ip from 192.0.2.77 to any in via eth0\n" +
			"add allow ip from any to any\n",
		// its redirection is that of nat 1
		"another instance": config + "nat 2 config if eth0\n" +
			"add nat 1 ip from 192.0.2.77 to any in via eth0\n" +
			"add nat 2 ip from any to any in via eth0\nadd allow ip from any to any\n",
		"refused behind it": "disable one_pass\n" + config +
			"add nat 1 ip from any to any in via eth0\nadd deny ip from any to 10.0.5.9 80\n" +
			"add allow ip from any to any\n",
		"refused at the other interface": config + "add nat 1 ip from any to any via eth0\n" +
			"add deny ip from any to any out via eth1\nadd allow ip from any to any\n",
		"off": config + "add set 3 nat 1 ip from any to any via eth0\nset disable 3\n" +
			"add allow ip from any to any\n",
	} {
		g.load(rules)
		if err := tryExchange(g.outside, "192.0.2.1:8080"); err == nil {
			t.Errorf("%s: a redirected port answers", name)
		}
		if s, err := g.engine.Stats(); err != nil || s.Translations.Now != 0 {
			t.Errorf("%s: %d translations, %v", name, s.Translations.Now, err)
		}
	}
}

// TestNATRulesLive: flows continue when the agent ends and another one takes over, and over a load
// of the same instance. Without the instance they end, and so they do when its address changes.
func TestNATRulesLive(t *testing.T) {
	t.Parallel()
	rules := natRuleFiles["one rule"]
	g := newNATRuleGateway(t, rules)
	var open []net.Conn
	for _, network := range []string{"tcp4", "udp4"} {
		c, err := g.server.DialContext(context.Background(), network, "192.0.2.2:80")
		g.must(err)
		defer c.Close()
		d, err := g.outside.DialContext(context.Background(), network, "192.0.2.1:8080")
		g.must(err)
		defer d.Close()
		open = append(open, c, d)
	}
	echoEach(t, open, "before")
	g.must(g.engine.Close())
	echoEach(t, open, "without the agent")
	g.open()
	g.must(g.engine.SetInterfaces(g.ifs))
	g.load(rules)
	echoEach(t, open, "taken over")
	g.must(g.engine.SetForwards(nil))
	g.must(g.engine.SetMasquerade(forward.Masquerade{
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}))
	echoEach(t, open, "with the settings")
	g.load("add 1 count ip from any to any\n" + rules)
	echoEach(t, open, "loaded")
	g.outgoing("taken over")
	count := func(when string, want bool) { // another address may have the next packets already
		t.Helper()
		all, err := g.engine.translations(g.engine.now())
		g.must(err)
		of := 0
		for _, s := range all {
			if s.WireFrom.Addr() == hostAddr || s.WireTo.Addr() == hostAddr {
				of++
			}
		}
		if (of > 0) != want {
			t.Errorf("%s: %d translations: %+v", when, of, all)
		}
	}
	count("loaded", true)
	g.load(strings.ReplaceAll(rules, "if eth0", "ip 192.0.2.9"))
	count("another address", false)
	g.load(rules)
	g.outgoing("again")
	count("again", true)
	g.load("add deny ip from any to any via eth0\n")
	count("without the rule", false)
}

// TestNATFollowsInterface: an instance has the address that its interface has now, and while that
// has none nothing leaves.
func TestNATFollowsInterface(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, natRuleFiles["one rule"])
	l := g.host.Link("eth0")
	g.must(g.host.Netlink().AddAddr(l.Index, netip.MustParsePrefix("192.0.2.9/32")))
	g.setAddrs("192.0.2.9/32", "192.0.2.1/24")
	g.outgoing("another address")
	if err := reach(g.outside, "192.0.2.9:8080"); err != nil {
		t.Errorf("redirected: %v", err)
	}
	shown := map[netip.Addr]bool{}
	for s, err := range g.engine.States() {
		g.must(err)
		if s.From.Addr() == serverFour {
			shown[s.WireFrom.Addr()] = true
		}
	}
	if len(shown) != 1 || !shown[netip.MustParseAddr("192.0.2.9")] {
		t.Errorf("flows are shown as from %v", shown)
	}
	g.setAddrs("2001:db8::1/64")
	if err := tryExchange(g.server, "192.0.2.2:80"); err == nil {
		t.Error("something leaves from an interface without an address")
	}
}

// TestNATRedirectAddr: a host has an address for itself, beside the others behind the instance.
func TestNATRedirectAddr(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, "nat 1 config if eth0 redirect_addr 10.0.5.9 192.0.2.9\n"+
		"add nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n")
	l := g.host.Link("eth0")
	g.must(g.host.Netlink().AddAddr(l.Index, netip.MustParsePrefix("192.0.2.9/32")))
	g.outgoing("with an address of its own")
	g.succeed("from outside", map[string]error{"tcp and udp": reach(g.outside, "192.0.2.9:80"),
		"icmp": ping(g.outside, "192.0.2.9")})
	for s, err := range g.engine.States() {
		g.must(err)
		if s.From.Addr() == serverFour && s.WireFrom.Addr() != fixed[0] {
			t.Errorf("shown as %+v", s)
		}
	}
}

// TestNATConflict: a port that is published is not redirected, and the rules before stay.
func TestNATConflict(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, openRules)
	g.must(g.engine.SetForwards([]forward.Published{{Proto: 6,
		Host: netip.MustParseAddrPort("192.0.2.1:8080"),
		Pod:  netip.MustParseAddrPort("10.0.5.9:80")}}))
	set, err := rule.ParseFile("", natRuleFiles["one rule"], nil)
	g.must(err)
	p, err := rule.Compile(set, rule.CompileOptions{})
	g.must(err)
	if err := g.engine.Load(p); err == nil || !strings.Contains(err.Error(), "[[forward]]") {
		t.Errorf("a port that is forwarded: %v", err)
	}
	if err := exchange(g.outside, "192.0.2.1:8080"); err != nil {
		t.Error(err)
	}
	g.nft("flush chain inet leaks in") // the flow ends with its port
	g.must(g.engine.SetForwards(nil))
	g.must(g.engine.Load(p))
	if err := g.engine.SetForwards([]forward.Published{{Proto: 6,
		Host: netip.MustParseAddrPort("192.0.2.1:8080"),
		Pod:  netip.MustParseAddrPort("10.0.5.9:80")}}); err == nil ||
		!strings.Contains(err.Error(), "weir fw nat show") {
		t.Errorf("a port that is redirected: %v", err)
	}
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
}

// TestNATUnregOnly: registered sources stay, those of private networks do not, and shared addresses
// (RFC 6598) count as private if the instance says so.
func TestNATUnregOnly(t *testing.T) {
	t.Parallel()
	rules := "nat 1 config if eth0 unreg_only\nadd nat 1 ip from any to any via eth0\n" +
		"add allow ip from any to any via eth1\n"
	g := newNATRuleGateway(t, rules)
	l := g.server.Link("eth0")
	for _, a := range []string{"198.51.100.5/32", "100.64.0.5/32"} {
		g.must(g.server.Netlink().AddAddr(l.Index, netip.MustParsePrefix(a)))
		g.host.Route(a, "10.0.5.9")
		g.outside.Route(a, "192.0.2.1")
	}
	translated := func() (n int) {
		s, err := g.engine.Stats()
		g.must(err)
		return s.Translations.Now
	}
	for _, c := range []struct {
		rules, source string
		hidden        int
	}{
		{rules, "198.51.100.5", 0}, {rules, "100.64.0.5", 0}, {rules, "10.0.5.9", 1},
		{strings.ReplaceAll(rules, "unreg_only", "unreg_cgn"), "100.64.0.5", 1},
		{strings.ReplaceAll(rules, "unreg_only", "unreg_cgn"), "198.51.100.5", 0},
		{strings.ReplaceAll(rules, "unreg_only", ""), "198.51.100.5", 1},
	} {
		g.load(c.rules)
		before := translated()
		if err := ping(g.server, "-I", c.source, "192.0.2.2"); err != nil {
			t.Errorf("%s: %v", c.source, err)
		}
		if n := translated() - before; n != c.hidden {
			t.Errorf("%s with %q: %d translations, not %d", c.source, c.rules[:40], n, c.hidden)
		}
	}
}
