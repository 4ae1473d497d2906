package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/forward"
)

// The server behind the host has the addresses `fixed` of the host to itself.

// pair gives the server its addresses, with other ports that are forwarded and networks that hide.
func (g *gateway) pair(ports ...forward.Published) {
	g.t.Helper()
	m := forward.Masquerade{Sources: podRanges, Except: podRanges,
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}
	for i, a := range []netip.Addr{serverFour, serverSix} {
		ports = append(ports, forward.Published{Host: end(fixed[i], 0), Pod: end(a, 0)})
		only := netip.PrefixFrom(a, a.BitLen())
		m.Others = append(m.Others, forward.SourceNAT{Source: only, To: fixed[i], Keep: true})
		m.Near = append(m.Near, only)
	}
	g.must(g.host.Do(func() error { return g.engine.SetForwards(ports) }))
	g.must(g.engine.SetMasquerade(m))
}

// unpair takes them back.
func (g *gateway) unpair() {
	g.t.Helper()
	g.must(g.host.Do(func() error { return g.engine.SetForwards(nil) }))
	g.masquerade(2000, 3000)
}

// TestOneToOne: all that goes to an address of the host reaches the server behind it, and what that
// sends comes from the address with the port that it had. This holds for TCP, UDP in fragments,
// echo, and the ICMP errors of both. A port that is forwarded comes before, and other addresses are
// the host's.
func TestOneToOne(t *testing.T) {
	for _, rules := range []string{openRules, "add allow ip from any to any\n"} {
		g := newHidden(t, rules)
		g.serve(g.server, 80)
		g.serve(g.server, 8443)
		g.serve(g.outside, 80)
		g.serve(g.host, 80)
		g.pair(forward.Published{Proto: 6, Host: end(fixed[0], 22), Pod: end(serverFour, 8443)})
		for i, at := range []string{"192.0.2.9", "2001:db8::9"} {
			if err := reach(g.outside, net.JoinHostPort(at, "80")); err != nil {
				t.Errorf("%s: %v", at, err)
			}
			if err := ping(g.outside, at); err != nil {
				t.Errorf("echo to %s: %v", at, err)
			}
			if err := ping(g.server, []string{"192.0.2.2", "2001:db8::2"}[i]); err != nil {
				t.Errorf("echo from the server: %v", err)
			}
			for _, c := range []struct{ from, to string }{
				{"outside", net.JoinHostPort(at, "80")}, {"server", outsideAt[i]}} {
				node := g.outside
				if c.from == "server" {
					node = g.server
				}
				u, err := node.DialContext(context.Background(), "udp", c.to)
				g.must(err)
				if err := echoWord(u, strings.Repeat("much to say ", 400)); err != nil {
					t.Errorf("a datagram in fragments from the %s: %v", c.from, err)
				}
				u.Close()
				refused := strings.TrimSuffix(c.to, "80") + "81"
				if err := exchange(node, refused); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("tcp from the %s to %s: %v", c.from, refused, err)
				}
				u, err = node.DialContext(context.Background(), "udp", refused)
				g.must(err)
				u.SetDeadline(time.Now().Add(testTimeout))
				u.Write([]byte("anybody?"))
				if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("udp from the %s to %s: %v", c.from, refused, err)
				}
				u.Close()
			}
		}
		g.checkPairs()
		g.succeed("beside a pair", map[string]error{
			"a forwarded port of the address": exchange(g.outside, "192.0.2.9:22"),
			"another address of the host":     exchange(g.outside, "192.0.2.1:80"),
			"a pod, hidden":                   reach(g.a.Node, "192.0.2.2:80"),
		})
	}
}

// checkPairs: the flows that are shown have the addresses, and their own ports.
func (g *gateway) checkPairs() {
	g.t.Helper()
	in, out := 0, 0
	for s, err := range g.engine.States() {
		g.must(err)
		switch {
		case s.To.Addr() == serverFour || s.To.Addr() == serverSix:
			in++
			if a := s.WireTo.Addr(); a != fixed[0] && a != fixed[1] ||
				s.WireTo.Port() != s.To.Port() {
				g.t.Errorf("shown as %+v", s)
			}
		case s.From.Addr() == serverFour || s.From.Addr() == serverSix:
			out++
			if a := s.WireFrom.Addr(); a != fixed[0] && a != fixed[1] ||
				s.WireFrom.Port() != s.From.Port() {
				g.t.Errorf("shown as %+v", s)
			}
		}
	}
	if in < 6 || out < 6 {
		g.t.Errorf("%d flows in, %d out are shown", in, out)
	}
}

// TestOneToOneObeysTheRules: they see the server's own address; nothing is open that they do not
// allow, and the answer to what they refuse comes from the address that was called.
func TestOneToOneObeysTheRules(t *testing.T) {
	t.Parallel()
	g := newHidden(t, "add 1 check-state\nadd 10 allow tcp from any to 10.0.5.9 80 setup keep-state\n"+
		"add 20 allow ipv6-icmp from any to any icmp6types 135,136\n"+
		"add 30 reject ip from any to 10.0.5.9\nadd 40 deny ip from any to any\n")
	g.serve(g.server, 80)
	g.serve(g.server, 81)
	g.pair()
	if err := exchange(g.outside, "192.0.2.9:80"); err != nil {
		t.Errorf("an allowed port: %v", err)
	}
	if err := exchange(g.outside, "192.0.2.9:81"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("a rejected port: %v", err)
	}
	if ping(g.outside, "-W1", "192.0.2.9") == nil {
		t.Error("an echo was answered")
	}
	if c, err := dialFrom(g.server, outsideAt[0], shortWait); err == nil {
		c.Close()
		t.Error("the server called")
	}
}

// TestOneToOneLives: flows in both directions continue without the agent and under the next one,
// and end with the setting.
func TestOneToOneLives(t *testing.T) {
	g := newHidden(t, openRules)
	g.serve(g.server, 80)
	g.serve(g.outside, 80)
	g.pair()
	var open []net.Conn
	for i, at := range outsideAt {
		c, err := dialFrom(g.server, at, testTimeout)
		g.must(err)
		defer c.Close()
		d, err := dialFrom(g.outside, net.JoinHostPort(fixed[i].String(), "80"), testTimeout)
		g.must(err)
		defer d.Close()
		open = append(open, c, d)
	}
	echoEach(t, open, "before")
	g.must(g.engine.Close())
	echoEach(t, open, "without the agent")
	g.open()
	g.must(g.engine.SetInterfaces(g.ifs))
	g.must(g.engine.Load(compile(t, openRules)))
	g.pair()
	echoEach(t, open, "the next agent")
	if s, err := g.engine.Stats(); err != nil || s.Translations.Now != len(open) {
		t.Errorf("%d translations of %d flows, %v", s.Translations.Now, len(open), err)
	}
	g.nft("flush chain inet leaks in")
	g.unpair()
	if s, err := g.engine.Stats(); err != nil || s.Translations.Now != 0 {
		t.Errorf("%d translations without the setting, %v", s.Translations.Now, err)
	}
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
}
