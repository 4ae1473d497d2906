package kernel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// translations are those of netfilter on the host. There is a service at a virtual address, as
// kube-proxy makes it, with what lets a pod call itself by it. There are a port of the host, and
// masquerading.
const translations = `table inet nat {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr 10.200.0.10 meta l4proto { tcp, udp } th dport 80 dnat ip to 10.88.0.3:7
		ip6 daddr fd00:200::10 meta l4proto { tcp, udp } th dport 80 dnat ip6 to [fd00:88::3]:7
		ip daddr 192.0.2.1 meta l4proto { tcp, udp } th dport 8080 dnat ip to 10.88.0.3:7
		ip6 daddr 2001:db8::1 meta l4proto { tcp, udp } th dport 8080 dnat ip6 to [fd00:88::3]:7
	}
	chain postrouting {
		type nat hook postrouting priority srcnat
		ip saddr 10.88.0.3 ip daddr 10.88.0.3 masquerade
		ip6 saddr fd00:88::3 ip6 daddr fd00:88::3 masquerade
		ip saddr 10.88.0.0/24 oifname eth0 masquerade
		ip6 saddr fd00:88::/64 oifname eth0 masquerade
	}
}
`

// netfilter has nft load rules on the host.
func (v *cluster) netfilter(rules string) {
	v.t.Helper()
	cmd := v.host.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		v.t.Fatalf("nft: %v: %s", err, out)
	}
}

// defaultRoute gives the host one over its NIC.
func (v *cluster) defaultRoute() {
	v.t.Helper()
	for _, args := range [][]string{{"-4", "192.0.2.2"}, {"-6", "2001:db8::2"}} {
		out, err := v.host.Command("ip", args[0], "route", "add", "default", "via",
			args[1]).CombinedOutput()
		if err != nil {
			v.t.Fatalf("%v: %s", err, out)
		}
	}
}

// talkLong talks to an address over TCP and UDP for longer than a flow takes to be established.
func talkLong(n *nstest.Node, to string) error {
	for _, network := range []string{"tcp", "udp"} {
		err := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			c, err := n.DialContext(ctx, network, to)
			if err != nil {
				return err
			}
			defer c.Close()
			for i := range 20 {
				if err := echoWord(c, fmt.Sprint(network, i)); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return fmt.Errorf("%s %s: %w", network, to, err)
		}
	}
	return nil
}

// What netfilter translates takes no path that goes round netfilter: neither what begins a flow nor
// its answers.
func TestNetfilterTranslates(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	for _, rules := range []string{openRules, "add allow ip from any to any\n"} {
		v := newCluster(t, rules)
		v.netfilter(translations)
		v.defaultRoute()
		v.must(v.engine.SetNetfilter(true))
		v.serve(v.b.Node, 7)
		v.serve(v.outside, 9)
		for _, c := range []struct {
			name string
			from *nstest.Node
			to   string
		}{
			{"service", v.a.Node, "10.200.0.10:80"},
			{"service, IPv6", v.a.Node, "[fd00:200::10]:80"},
			{"service, itself", v.b.Node, "10.200.0.10:80"},
			{"service, itself, IPv6", v.b.Node, "[fd00:200::10]:80"},
			{"port of the host", v.outside, "192.0.2.1:8080"},
			{"port of the host, IPv6", v.outside, "[2001:db8::1]:8080"},
			{"masquerade", v.a.Node, "192.0.2.2:9"},
			{"masquerade, IPv6", v.a.Node, "[2001:db8::2]:9"},
			{"pod", v.a.Node, "10.88.0.3:7"},
			{"pod, IPv6", v.a.Node, "[fd00:88::3]:7"},
		} {
			if err := talkLong(c.from, c.to); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		v.masqueraded("192.0.2.2:10", netip.MustParseAddr("192.0.2.1"))
		v.masqueraded("[2001:db8::2]:10", netip.MustParseAddr("2001:db8::1"))
	}
}

// masqueraded has the first pod call an outside address, which has to see it as the host.
func (v *cluster) masqueraded(at string, want netip.Addr) {
	v.t.Helper()
	l, err := v.outside.Listen("tcp", at)
	v.must(err)
	defer l.Close()
	c, err := dialFrom(v.a.Node, at, testTimeout)
	v.must(err)
	defer c.Close()
	in, err := l.Accept()
	v.must(err)
	defer in.Close()
	if got := in.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != want {
		v.t.Errorf("%s sees %s, not %s", at, got, want)
	}
}

// Answers to what netfilter has translated go back through it, although the engine does not know
// that it translates.
func TestAnswersFollowTheirFlow(t *testing.T) {
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	v.netfilter(translations)
	v.serve(v.b.Node, 7)
	for _, c := range []struct {
		from *nstest.Node
		to   string
	}{
		{v.a.Node, "10.200.0.10:80"}, {v.a.Node, "[fd00:200::10]:80"},
		{v.b.Node, "10.200.0.10:80"}, {v.b.Node, "[fd00:200::10]:80"},
		{v.outside, "192.0.2.1:8080"}, {v.outside, "[2001:db8::1]:8080"},
	} {
		if err := talkLong(c.from, c.to); err != nil {
			t.Error(err)
		}
	}
}

// A flow that netfilter leaves as it is takes the fast path, whether netfilter might have
// translated it or not: from its first packet on, or from the second.
func TestUntranslatedFlowsAreFast(t *testing.T) {
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	v.netfilter(translations)
	v.serve(v.b.Node, 7)
	for _, may := range []bool{false, true} {
		v.must(v.engine.SetNetfilter(may))
		before := v.hostSent(v.a) + v.hostSent(v.b)
		v.must(talkLong(v.a.Node, "10.88.0.3:7"))
		// Two packets begin flows, more than 80 follow. The host itself sends some (MLD).
		if got := v.hostSent(v.a) + v.hostSent(v.b) - before; got > 20 {
			t.Errorf("netfilter may translate: %v. %d packets took the stack", may, got)
		}
	}
}
