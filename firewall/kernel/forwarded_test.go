package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// gateway is a cluster with a server behind the host that is not a pod. The outside does not know
// the server's addresses.
//
//	host 10.0.5.1 --- eth1 --- server 10.0.5.9
//
// and the same with fd00:5::. The server has its default routes through the host.
type gateway struct {
	*cluster
	server *nstest.Node
	inside uint32 // index of eth1
}

var (
	serverFour = netip.MustParseAddr("10.0.5.9")
	serverSix  = netip.MustParseAddr("fd00:5::9")
)

func newGateway(t *testing.T, rules string) *gateway {
	g := &gateway{cluster: newCluster(t, rules)}
	g.server = g.lab.Node("server")
	g.lab.Join(g.host, "eth1", "10.0.5.1/24 fd00:5::1/64", g.server, "eth0",
		"10.0.5.9/24 fd00:5::9/64")
	g.server.Route("0.0.0.0/0", "10.0.5.1")
	g.server.Route("::/0", "fd00:5::1")
	g.inside = g.addInterface("eth1", "10.0.5.1/24 fd00:5::1/64")
	g.must(g.host.Do(func() error { _, err := g.engine.Attach(g.inside); return err }))
	g.nft("add table inet leaks")
	g.nft("add chain inet leaks in { type filter hook prerouting priority -400; }")
	g.nft("add rule inet leaks in ip saddr 10.0.5.0/24 counter")
	g.nft("add rule inet leaks in ip6 saddr fd00:5::/64 counter")
	t.Cleanup(func() {
		list := g.nft("list table inet leaks")
		if list != "" && strings.Count(list, "packets 0 ") != 2 {
			t.Errorf("packets that are not translated have reached the outside:\n%s", list)
		}
	})
	return g
}

// nft asks nft of the outside. On the other kernels of make test-kernels there is none: then
// nothing counts what is not translated.
func (g *gateway) nft(args string) string {
	g.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		return ""
	}
	out, err := g.outside.Command("nft", args).CombinedOutput()
	if err != nil {
		g.t.Fatalf("nft %s: %v: %s", args, err, out)
	}
	return string(out)
}

// awaitAcknowledged waits until all that the server has sent over TCP is acknowledged. Without its
// translation it would send that again, and from its own address.
func (g *gateway) awaitAcknowledged() {
	g.t.Helper()
	g.awaitSockets(g.server, "the server's data is acknowledged", func(state, queues string) bool {
		return state != "01" || strings.HasPrefix(queues, "00000000:")
	})
}

// awaitClosed does so until all connections between the server and the outside have ended, up to
// the last acknowledgement.
func (g *gateway) awaitClosed() {
	g.t.Helper()
	for _, n := range []*nstest.Node{g.server, g.outside} {
		g.awaitSockets(n, "the connections end", func(state, _ string) bool {
			return state == "0A" || state == "06" // TCP_LISTEN, TCP_TIME_WAIT
		})
	}
}

// awaitSockets waits until all sockets of TCP of a node are as they should be: 01 is the state of
// established ones.
func (g *gateway) awaitSockets(n *nstest.Node, what string, fine func(state, queues string) bool) {
	g.t.Helper()
	nstest.Eventually(g.t, what, func() bool {
		all := true
		g.must(n.Do(func() error {
			for _, name := range []string{"tcp", "tcp6"} {
				text, err := os.ReadFile("/proc/thread-self/net/" + name)
				if err != nil {
					return err
				}
				_, lines, _ := strings.Cut(string(text), "\n") // below the heads of the columns
				for line := range strings.Lines(lines) {
					f := strings.Fields(line)
					all = all && fine(f[3], f[4])
				}
			}
			return nil
		}))
		return all
	})
}

// forwards are a port of the host, for both families, TCP and UDP, that leads to one of the server.
func forwards(port, serverPort uint16) (all []forward.Published) {
	for host, server := range map[netip.Addr]netip.Addr{netip.IPv4Unspecified(): serverFour,
		netip.IPv6Unspecified(): serverSix} {
		for _, proto := range []packet.Proto{packet.ProtoTCP, packet.ProtoUDP} {
			all = append(all, forward.Published{Proto: proto,
				Host: netip.AddrPortFrom(host, port), Pod: netip.AddrPortFrom(server, serverPort)})
		}
	}
	return all
}

func (g *gateway) forward(port, serverPort uint16) {
	g.t.Helper()
	g.must(g.host.Do(func() error { return g.engine.SetForwards(forwards(port, serverPort)) }))
}

var forwardedAt = []string{"192.0.2.1:8080", "[2001:db8::1]:8080"}

// TestForwardedPorts: a port of the host leads to a server that is not a pod, whether rules keep
// states or not, beside published ports and masqueraded pods.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{openRules, "add allow ip from any to any\n"} {
		g := newGateway(t, rules)
		g.serve(g.server, 80)
		g.serve(g.a.Node, 80)
		g.serve(g.outside, 80)
		g.masquerade(2000, 3000)
		g.publish(9090, 80)
		g.forward(8080, 80)
		for _, to := range forwardedAt {
			if err := reach(g.outside, to); err != nil {
				t.Errorf("%s: %v", to, err)
			}
			c, err := dialFrom(g.outside, to, testTimeout)
			g.must(err)
			if err := echoText(c, strings.Repeat("much to say ", 40_000)); err != nil {
				t.Errorf("much over %s: %v", to, err)
			}
			c.Close()
			u, err := g.outside.DialContext(context.Background(), "udp", to)
			g.must(err)
			if err := echoWord(u, strings.Repeat("much to say ", 400)); err != nil {
				t.Errorf("a datagram in fragments to %s: %v", to, err)
			}
			u.Close()
		}
		shown := 0
		for s, err := range g.engine.States() {
			g.must(err)
			if s.To.Addr() != serverFour && s.To.Addr() != serverSix {
				continue
			}
			shown++
			if s.WireTo.Port() != 8080 || s.To.Port() != 80 || s.From != s.WireFrom {
				t.Errorf("shown as %+v", s)
			}
		}
		if shown < 4 {
			t.Errorf("%d translated flows are shown", shown)
		}
		g.succeed("beside forwarded ports", map[string]error{
			"a published port":           reach(g.outside, "192.0.2.1:9090"),
			"a pod":                      reach(g.a.Node, "192.0.2.2:80"),
			"a pod to the server itself": reach(g.a.Node, "10.0.5.9:80"),
			"the host to the server":     reach(g.host, "10.0.5.9:80"),
		})
		// The host's and the pods' own packets are not forwarded: nothing listens there.
		for _, from := range []*nstest.Node{g.host, g.a.Node} {
			for _, to := range forwardedAt {
				if err := exchange(from, to); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s calls %s: %v", from, to, err)
				}
			}
		}
	}
}

// TestForwardedErrors: the server's errors, and those of the host about the path to it, reach the
// client. They come as if the port's address had said it, or with the quote that the client knows.
func TestForwardedErrors(t *testing.T) {
	t.Parallel()
	g := newGateway(t, openRules)
	g.forward(8080, 80) // where no socket listens
	for _, to := range forwardedAt {
		if err := exchange(g.outside, to); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("tcp to %s: %v", to, err)
		}
		u, err := g.outside.DialContext(context.Background(), "udp", to)
		g.must(err)
		u.SetDeadline(time.Now().Add(testTimeout))
		u.Write([]byte("anybody?"))
		if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("udp to %s: %v", to, err)
		}
		u.Close()
	}
	g.serve(g.server, 80)
	for _, args := range []string{"-4 route replace 10.0.5.9/32 dev eth1 mtu 1300",
		"-6 route replace fd00:5::9/128 dev eth1 mtu 1300"} {
		out, err := g.host.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	for _, to := range forwardedAt {
		c, err := dialFrom(g.outside, to, testTimeout)
		g.must(err)
		if err := echoText(c, strings.Repeat("much to say ", 40_000)); err != nil {
			t.Errorf("over a path with a smaller MTU, %s: %v", to, err)
		}
		c.Close()
	}
}

// TestForwardedPortsRefused: what rules refuse on its way in or out makes no translation, and no
// answer leaves with the server's address.
func TestForwardedPortsRefused(t *testing.T) {
	t.Parallel()
	const keep = "add 1 check-state\nadd 5 allow ip from any to any keep-state\n"
	for _, c := range []struct {
		rule string
		want error
	}{
		{"add 2 deny ip from any to 10.0.5.9,fd00:5::9 80 in\n", context.DeadlineExceeded},
		{"add 2 deny ip from any to 10.0.5.9,fd00:5::9 80 out\n", context.DeadlineExceeded},
		{"add 2 reset tcp from any to 10.0.5.9,fd00:5::9 80 in\n", unix.ECONNREFUSED},
		{"add 2 reset tcp from any to 10.0.5.9,fd00:5::9 80 out\n", context.DeadlineExceeded},
		{"add 2 reject tcp from any to 10.0.5.9,fd00:5::9 80 out\n", context.DeadlineExceeded},
	} {
		rules := c.rule + keep
		if strings.HasSuffix(c.rule, "out\n") { // a state that is made on the way in lets it out
			rules = c.rule + "add 5 allow ip from any to any\n"
		}
		g := newGateway(t, rules)
		g.serve(g.server, 80)
		g.forward(8080, 80)
		for _, to := range forwardedAt {
			c2, err := dialFrom(g.outside, to, waitTime(c.want == unix.ECONNREFUSED))
			if err == nil {
				c2.Close()
			}
			var timeout interface{ Timeout() bool }
			timedOut := errors.As(err, &timeout) && timeout.Timeout()
			if c.want == unix.ECONNREFUSED && !errors.Is(err, unix.ECONNREFUSED) ||
				c.want != unix.ECONNREFUSED && !timedOut {
				t.Errorf("%s: %s: %v", c.rule, to, err)
			}
		}
		if s, err := g.engine.Stats(); err != nil || s.Translations.Now != 0 {
			t.Errorf("%s: %d translations are left, %v", c.rule, s.Translations.Now, err)
		}
	}
}

// TestForwardedConnectionReset: rules that refuse an open connection on its way out reset it in the
// name of the port that it came through.
func TestForwardedConnectionReset(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "add allow ip from any to any\n")
	g.serve(g.server, 80)
	g.forward(8080, 80)
	for _, to := range forwardedAt {
		g.must(g.engine.Load(compile(t, "add allow ip from any to any\n")))
		c, err := dialFrom(g.outside, to, testTimeout)
		g.must(err)
		defer c.Close()
		g.must(echoWord(c, "before"))
		g.must(g.engine.Load(compile(t, "add reset tcp from any to any 80 out\n"+
			"add allow ip from any to any\n")))
		if err := echoWord(c, "after"); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestForwardedConnectionsLive: connections live when the engine is replaced, and with the settings
// that are the same; they end with the setting, and when it leads elsewhere.
func TestForwardedConnectionsLive(t *testing.T) {
	t.Parallel()
	g := newGateway(t, openRules)
	g.serve(g.server, 80)
	g.serve(g.server, 81)
	g.publish(9090, 80)
	g.forward(8080, 80)
	dial := func(networks ...string) (say func(string, time.Duration) error) {
		var open []net.Conn
		for _, network := range networks {
			for _, to := range forwardedAt {
				c, err := g.outside.DialContext(context.Background(), network, to)
				g.must(err)
				t.Cleanup(func() { c.Close() })
				open = append(open, c)
			}
		}
		return func(word string, most time.Duration) (all error) {
			for _, c := range open {
				err := echoWordFor(c, word, most)
				if most == shortWait && err == nil {
					return nil
				}
				all = errors.Join(all, err)
			}
			return all
		}
	}
	say := dial("tcp", "udp")
	g.must(say("before", testTimeout))
	g.must(g.engine.Close())
	if err := say("without the agent", testTimeout); err != nil {
		t.Error(err)
	}
	g.open()
	g.must(g.engine.SetInterfaces(g.ifs))
	g.must(g.engine.Load(compile(t, openRules)))
	if err := say("taken over", testTimeout); err != nil {
		t.Error(err)
	}
	g.forward(8080, 80)
	g.publish(9090, 80)
	if err := say("the same settings", testTimeout); err != nil {
		t.Error(err)
	}
	g.publish(9091, 80)
	if err := say("other published ports", testTimeout); err != nil {
		t.Error(err)
	}
	say = dial("tcp")
	g.must(say("before", testTimeout))
	g.awaitAcknowledged()
	g.forward(8080, 81)
	if say("elsewhere", shortWait) == nil {
		t.Error("a connection continues to a server that the port leads to no longer")
	}
	say = dial("tcp", "udp")
	g.must(say("to the other port", testTimeout))
	g.awaitAcknowledged()
	g.must(g.host.Do(func() error { return g.engine.SetForwards(nil) }))
	if say("nowhere", shortWait) == nil {
		t.Error("a connection continues through a port that is forwarded no longer")
	}
	for _, to := range forwardedAt {
		if err := exchange(g.outside, to); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, forwarded no longer: %v", to, err)
		}
	}
	if err := exchange(g.outside, "192.0.2.1:9091"); err == nil {
		t.Error("port 80 of the pod is not served")
	}
}

// TestForwardedPortsAreNotPublished: one port is either published or forwarded.
func TestForwardedPortsAreNotPublished(t *testing.T) {
	t.Parallel()
	g := newGateway(t, openRules)
	g.serve(g.server, 80)
	g.serve(g.a.Node, 80)
	g.publish(8080, 80)
	err := g.host.Do(func() error { return g.engine.SetForwards(forwards(8080, 80)) })
	if err == nil || !strings.Contains(err.Error(), "published for a pod") {
		t.Errorf("forwarding a published port: %v", err)
	}
	g.forward(8081, 80)
	g.must(g.engine.SetPublished(nil))
	g.forward(8080, 80)
	err = g.engine.SetPublished([]forward.Published{{Proto: packet.ProtoTCP,
		Host: netip.MustParseAddrPort("0.0.0.0:8080"), Pod: end(podA, 80)}})
	if err == nil || !strings.Contains(err.Error(), "[[forward]]") {
		t.Errorf("publishing a forwarded port: %v", err)
	}
	if err := reach(g.outside, "192.0.2.1:8080"); err != nil {
		t.Error(err)
	}
	// A port of one address comes before one of all.
	g.must(g.engine.SetForwards([]forward.Published{{Proto: packet.ProtoTCP,
		Host: netip.MustParseAddrPort("192.0.2.1:80"), Pod: end(serverFour, 80)}}))
	g.must(g.host.Do(func() error {
		return g.engine.SetPublished([]forward.Published{{Proto: packet.ProtoTCP,
			Host: netip.MustParseAddrPort("0.0.0.0:80"), Pod: end(podA, 81)}})
	}))
	if err := exchange(g.outside, "192.0.2.1:80"); err != nil {
		t.Errorf("a forwarded port of one address: %v", err)
	}
}

// TestForwardedAndDirect: a client that knows a route to the server may use one source port for the
// server itself and for the forwarded port. The later one through the port gets another source
// port; the later one to the server itself is refused and changes nothing.
func TestForwardedAndDirect(t *testing.T) {
	t.Parallel()
	g := newGateway(t, natRules)
	g.nft("flush table inet leaks") // the server may speak for itself
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
	g.nft("add rule inet leaks in ip daddr 10.9.9.9 counter")
	g.must(g.outside.AddRoute(netip.MustParsePrefix("10.0.5.0/24"),
		netip.MustParseAddr("192.0.2.1")))
	g.serve(g.server, 80)
	g.forward(8080, 80)
	for i, order := range [][]string{{"10.0.5.9:80", "192.0.2.1:8080"},
		{"192.0.2.1:8080", "10.0.5.9:80"}} {
		from, second, most := end(outsideAddr, 30001+i), i == 0, 2*shortWait
		if second {
			most = testTimeout
		}
		first, err := dialBy(from, g.cluster, order[0], testTimeout)
		g.must(err)
		g.must(echoWord(first, "first"))
		c, err := dialBy(from, g.cluster, order[1], most)
		if (err == nil) != second {
			t.Errorf("%s after %s: %v", order[1], order[0], err)
		}
		if err == nil {
			g.must(echoWord(c, "second"))
		}
		g.must(echoWord(first, "first again"))
	}
}

// TestForwardsShareALimit: the translations of all forwarded ports together are limited as those of
// one pod, so that they leave others theirs.
func TestForwardsShareALimit(t *testing.T) {
	t.Parallel()
	g := newGateway(t, natRules)
	g.forward(8080, 80)
	// So many that the search for one that gives way, by samples of the table, always finds one.
	const most = 512
	g.setConfig(func(c *weirConfig) { c.MaxPodNats = most })
	f := framesOf(g.cluster)
	for i := range 2 * most {
		if code, _, to := f.send(end(outsideAddr, 10000+i), end(hostAddr, 8080),
			build.UDP{}); code != wentUp || to != end(serverFour, 80) {
			t.Fatalf("question %d: %d to %s", i, code, to)
		}
	}
	var n weirNatCount
	g.must(g.engine.objects.NatCounts.Lookup(uint32(maxPods), &n))
	if n.Nats != most || len(f.pairs()) != most {
		t.Errorf("%d translations are counted, %d are there, at most %d", n.Nats, len(f.pairs()),
			most)
	}
	if n := f.drops(firewall.ReasonNATPorts); n != 0 {
		t.Errorf("%d questions were refused", n)
	}
}
