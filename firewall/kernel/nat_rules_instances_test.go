package kernel

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
)

// redirects8080 is an instance beside that of the rule in front of its own.
const redirects8080 = "nat 2 config if eth0 redirect_port tcp 10.0.5.9:80 8080\n"

// TestNATDenyInOfOneInstance: what deny_in drops is not let in to the host because another instance
// redirects its port.
func TestNATDenyInOfOneInstance(t *testing.T) {
	t.Parallel()
	g := newNATRuleGateway(t, "nat 1 config if eth0 deny_in\n"+redirects8080+
		"add 10 nat 2 ip from 192.0.2.77 to any in via eth0\n"+
		"add 20 nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n")
	g.serve(g.host, 8080)
	g.outgoing("behind the host")
	if err := tryExchange(g.outside, "192.0.2.1:8080"); err == nil {
		t.Error("deny_in lets in what another instance redirects")
	}
}

// TestNATInstancesInARow: where packets continue behind a rule with nat, each instance has its
// turn.
func TestNATInstancesInARow(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]string{
		"behind":   "add 10 nat 1 ip from any to any in via eth0\nadd 20 nat 2 ip from any to any in via eth0\n",
		"in front": "add 10 nat 2 ip from any to any in via eth0\nadd 20 nat 1 ip from any to any in via eth0\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := newNATRuleGateway(t, "disable one_pass\nnat 1 config if "+
				"eth0\n"+redirects8080+order+
				"add 30 nat 1 ip from 10.0.0.0/8 to any out via eth0\nadd 40 allow ip from any to any\n")
			g.outgoing("behind the host")
			if err := exchange(g.outside, "192.0.2.1:8080"); err != nil {
				t.Errorf("redirected: %v", err)
			}
		})
	}
}

// TestNATReturnsFromCall: rules that were called with a packet on the wire return with it when it
// is translated.
func TestNATReturnsFromCall(t *testing.T) {
	t.Parallel()
	const rules = "disable one_pass\nnat 1 config if eth0 redirect_port tcp 10.0.5.9:80 8080\n" +
		"add 10 allow ip from any to any via eth1\nadd 20 call 1000 ip from any to any via eth0\n" +
		"add 30 deny tcp from any to 10.0.5.9 80 in\nadd 40 allow ip from any to any\n" +
		"add 1000 nat 1 ip from any to any\nadd 1010 return ip from any to any\n" +
		"add 1020 allow ip from any to any\n"
	g := newNATRuleGateway(t, rules)
	g.outgoing("behind the host")
	if err := tryExchange(g.outside, "192.0.2.1:8080"); err == nil {
		t.Error("a rule behind the call does not see what nat has translated")
	}
}

// TestNATOtherSizes: when the table gets another size, translations stay those of a rule, whose
// packets the rules in front of it see as they are on the wire.
func TestNATOtherSizes(t *testing.T) {
	t.Parallel()
	rules := natRuleFiles["simple"]
	g := newNATRuleGateway(t, rules)
	c, err := dialFrom(g.server, "192.0.2.2:80", testTimeout)
	g.must(err)
	defer c.Close()
	g.must(echoWord(c, "before"))
	g.must(g.engine.Close())
	o := firewall.DefaultOptions()
	o.MaxStates *= 2
	g.must(g.host.Do(func() (err error) {
		g.engine, err = openShared(t, Config{Dir: g.dir, Options: o})
		return err
	}))
	g.must(g.engine.SetInterfaces(g.ifs))
	g.must(g.engine.SetMasquerade(forward.Masquerade{
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}))
	g.load(rules)
	for _, i := range g.ifs {
		if i.Name != "lo" {
			g.must(g.host.Do(func() error { _, err := g.engine.Attach(i.Index); return err }))
		}
	}
	if err := echoWord(c, "after"); err != nil {
		t.Errorf("a connection through a table of another size: %v", err)
	}
}

// TestNATDenyInBesideService: a service of the host that a rule in front of deny_in lets in answers
// through it, with and without a state.
func TestNATDenyInBesideService(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"", " setup keep-state"} {
		g := newNATRuleGateway(t, "nat 1 config if eth0 deny_in\n"+
			"add 10 allow tcp from any to me 90 in via eth0"+how+"\n"+
			"add 15 allow icmp from any to me in via eth0\n"+
			"add 20 nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n")
		g.serve(g.host, 90)
		for range 2 {
			if err := exchange(g.outside, "192.0.2.1:90"); err != nil {
				t.Errorf("%q: %v", how, err)
			}
		}
		if err := ping(g.outside, "192.0.2.1"); err != nil {
			t.Errorf("%q: ping: %v", how, err)
		}
	}
}

// TestNATStaysTranslated: what leaves in a translated connection is translated, also if a rule
// without nat lets it pass by now. In ipfw it would leave with an inner address.
func TestNATStaysTranslated(t *testing.T) {
	t.Parallel()
	rules := natRuleFiles["one rule"]
	g := newNATRuleGateway(t, rules)
	c, err := dialFrom(g.server, "192.0.2.2:80", testTimeout)
	g.must(err)
	defer c.Close()
	g.must(echoWord(c, "by nat"))
	g.load("add 5 allow tcp from 10.0.0.0/8 to any out via eth0\n" + rules)
	if err := echoWord(c, "by another rule"); err != nil {
		t.Error(err)
	}
}
