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

// fixed are the addresses of the host that the network behind it gets.
var fixed = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}

// hide gives the network behind the host other sources, beside the pods' masquerade.
func (g *gateway) hide(to ...netip.Addr) {
	g.t.Helper()
	m := forward.Masquerade{Sources: podRanges, Except: podRanges,
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}
	for i, source := range []string{"10.0.5.0/24", "fd00:5::/64"} {
		if i < len(to) {
			m.Others = append(m.Others, forward.SourceNAT{Source: netip.MustParsePrefix(source),
				To: to[i]})
			m.Near = append(m.Near, netip.MustParsePrefix(source))
		}
	}
	g.must(g.engine.SetMasquerade(m))
}

func newHidden(t *testing.T, rules string) *gateway {
	g := newGateway(t, rules)
	l := g.host.Link("eth0")
	for _, a := range fixed {
		g.must(g.host.Netlink().AddAddr(l.Index, netip.PrefixFrom(a, a.BitLen())))
	}
	return g
}

var outsideAt = []string{"192.0.2.2:80", "[2001:db8::2]:80"}

// TestSourceNAT: what comes from a network behind the host leaves with the address of the NIC, or
// with a fixed one, and what it calls answers that. It does so beside pods, and forwarded ports.
func TestSourceNAT(t *testing.T) {
	for _, rules := range []string{openRules, "add allow ip from any to any\n"} {
		g := newHidden(t, rules)
		g.serve(g.outside, 80)
		g.serve(g.server, 80)
		g.serve(g.a.Node, 80)
		shown := map[netip.Addr]int{} // by the source on the wire
		for _, to := range [][]netip.Addr{{{}, {}}, fixed} {
			g.hide(to...)
			for i, at := range outsideAt {
				if err := reach(g.server, at); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				u, err := g.server.DialContext(context.Background(), "udp", at)
				g.must(err)
				if err := echoWord(u, strings.Repeat("much to say ", 400)); err != nil {
					t.Errorf("a datagram in fragments to %s: %v", at, err)
				}
				u.Close()
				c, err := dialFrom(g.server, at, testTimeout)
				g.must(err)
				if err := echoText(c, strings.Repeat("much to say ", 40_000)); err != nil {
					t.Errorf("much over %s: %v", at, err)
				}
				c.Close()
				if err := ping(g.server, []string{"192.0.2.2", "2001:db8::2"}[i]); err != nil {
					t.Error(err)
				}
				// where no socket listens
				refused := strings.TrimSuffix(at, "80") + "81"
				if err := exchange(g.server, refused); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("tcp to %s: %v", refused, err)
				}
				u, err = g.server.DialContext(context.Background(), "udp", refused)
				g.must(err)
				u.SetDeadline(time.Now().Add(testTimeout))
				u.Write([]byte("anybody?"))
				if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("udp to %s: %v", refused, err)
				}
				u.Close()
			}
			for s, err := range g.engine.States() {
				g.must(err)
				if s.From.Addr() == serverFour || s.From.Addr() == serverSix {
					shown[s.WireFrom.Addr()]++
				}
			}
		}
		for _, a := range append([]netip.Addr{hostAddr}, fixed...) {
			if shown[a] == 0 {
				t.Errorf("no flow is shown as from %s: %v", a, shown)
			}
		}
		g.forward(8080, 80)
		g.succeed("beside source NAT", map[string]error{
			"a pod, hidden":            reach(g.a.Node, "192.0.2.2:80"),
			"the host":                 reach(g.host, "192.0.2.2:80"),
			"the server to a pod":      exchange(g.server, "10.88.0.2:80"),
			"a pod to the server":      reach(g.a.Node, "10.0.5.9:80"),
			"through a forwarded port": reach(g.outside, "192.0.2.1:8080"),
			"the same, 6":              reach(g.outside, "[2001:db8::1]:8080"),
		})
	}
}

// TestSourceNATLives: flows continue when the engine is replaced, and with the settings that are
// the same; their translations end with the setting.
func TestSourceNATLives(t *testing.T) {
	g := newHidden(t, openRules)
	g.serve(g.outside, 80)
	g.hide(fixed...)
	var open []net.Conn
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range outsideAt {
			c, err := g.server.DialContext(context.Background(), network, to)
			g.must(err)
			defer c.Close()
			open = append(open, c)
		}
	}
	echoEach(t, open, "before")
	g.must(g.engine.Close())
	echoEach(t, open, "without the agent")
	g.open()
	g.must(g.engine.SetInterfaces(g.ifs))
	g.must(g.engine.Load(compile(t, openRules)))
	echoEach(t, open, "taken over")
	g.hide(fixed...)
	g.publish(9090, 80)
	echoEach(t, open, "the same settings")
	if s, err := g.engine.Stats(); err != nil || s.Translations.Now != len(open) {
		t.Errorf("%d translations of %d flows, %v", s.Translations.Now, len(open), err)
	}
	g.nft("flush chain inet leaks in")
	g.hide()
	if s, err := g.engine.Stats(); err != nil || s.Translations.Now != 0 {
		t.Errorf("%d translations without the setting, %v", s.Translations.Now, err)
	}
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
}

// TestNATWithoutPods: on a host without pods and published ports nothing else makes the hooks
// translate.
func TestNATWithoutPods(t *testing.T) {
	g := newHidden(t, openRules)
	g.serve(g.outside, 80)
	g.serve(g.server, 80)
	for _, pod := range []*podNode{g.a, g.b} {
		g.must(g.engine.DeleteEndpoint(pod.endpoint.Index))
	}
	g.hide(fixed...)
	for _, at := range outsideAt {
		if err := reach(g.server, at); err != nil {
			t.Errorf("hidden: %v", err)
		}
	}
	g.must(g.engine.SetMasquerade(forward.Masquerade{}))
	g.forward(8080, 80)
	for _, at := range forwardedAt {
		if err := reach(g.outside, at); err != nil {
			t.Errorf("forwarded: %v", err)
		}
	}
	if g.engine.local != nil {
		t.Error("the loopback has a hook, which only ports of pods need")
	}
}

// TestSourceNATLeavesBridgedFramesAlone: what the host's bridge hands from one port to the other is
// not routed by the host, and keeps its source: broadcast, and what goes to another router.
func TestSourceNATLeavesBridgedFramesAlone(t *testing.T) {
	g := newHidden(t, openRules)
	router := g.lab.Node("router")
	g.lab.Join(g.host, "eth2", "", router, "eth0", "10.0.5.8/24 198.51.100.5/32")
	index := g.addInterface("eth2", "")
	g.must(g.host.Do(func() error { _, err := g.engine.Attach(index); return err }))
	for _, line := range []string{"add br0 type bridge", "set eth1 master br0",
		"set eth2 master br0", "set br0 up"} {
		out, err := g.host.Command("ip", append([]string{"link"},
			strings.Fields(line)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip link %s: %v: %s", line, err, out)
		}
	}
	g.server.Route("198.51.100.5/32", "10.0.5.8")
	g.hide(fixed...)
	g.serve(router, 80)
	if err := ping(g.server, "198.51.100.5"); err != nil {
		t.Errorf("to another router: %v", err)
	}
	if err := exchange(g.server, "198.51.100.5:80"); err != nil {
		t.Errorf("to another router: %v", err)
	}
	heard, err := router.ListenPacket("udp4", "0.0.0.0:9999")
	g.must(err)
	defer heard.Close()
	say, err := g.server.ListenPacket("udp4", "0.0.0.0:0")
	g.must(err)
	defer say.Close()
	_, err = say.WriteTo([]byte("anybody?"), net.UDPAddrFromAddrPort(
		netip.MustParseAddrPort("255.255.255.255:9999")))
	g.must(err)
	g.must(heard.SetReadDeadline(time.Now().Add(testTimeout)))
	if _, from, err := heard.ReadFrom(make([]byte, 100)); err != nil ||
		from.(*net.UDPAddr).AddrPort().Addr().Unmap() != serverFour {
		t.Errorf("a broadcast: %v, from %v", err, from)
	}
}
