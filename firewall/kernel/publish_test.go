package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

func (v *cluster) publish(port, podPort uint16) {
	v.t.Helper()
	var all []forward.Published
	for i, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP} {
			all = append(all, forward.Published{
				Proto: packet.Proto(proto), Host: netip.AddrPortFrom(any, port),
				Pod: netip.AddrPortFrom(v.a.endpoint.Addrs[i], podPort),
			})
		}
	}
	v.must(v.host.Do(func() error { return v.engine.SetPublished(all) }))
}

func (v *cluster) masquerade(lo, hi uint16) {
	v.t.Helper()
	v.must(v.engine.SetMasquerade(forward.Masquerade{Sources: podRanges, Except: podRanges,
		Ports: []forward.PortRange{{First: lo, Last: hi}}}))
}

func TestPublishedPorts(t *testing.T) {
	t.Parallel()
	publishedPorts(t, newCluster(t, openRules))
}

func publishedPorts(t *testing.T, v *cluster) {
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	for _, w := range []struct {
		what string
		err  error
	}{
		{"from outside", reach(v.outside, "192.0.2.1:8080")},
		{"from outside, 6", reach(v.outside, "[2001:db8::1]:8080")},
		{"from a pod", reach(v.b.Node, "192.0.2.1:8080")},
		{"from a pod, 6", reach(v.b.Node, "[2001:db8::1]:8080")},
		{"from a pod at the gateway", reach(v.b.Node, "10.88.0.1:8080")},
		{"from the pod itself", reach(v.a.Node, "192.0.2.1:8080")},
		{"from the pod itself, 6", reach(v.a.Node, "[2001:db8::1]:8080")},
		{"from the host", reach(v.host, "192.0.2.1:8080")},
		{"from the host, 6", reach(v.host, "[2001:db8::1]:8080")},
		{"from the host at localhost", reach(v.host, "127.0.0.1:8080")},
		{"from the host at localhost, 6", reach(v.host, "[::1]:8080")},
	} {
		if w.err != nil {
			t.Errorf("%s: %v", w.what, w.err)
		}
	}
	for _, to := range []string{"192.0.2.1:8080", "127.0.0.1:8080", "[2001:db8::1]:8080",
		"[::1]:8080"} {
		u, err := v.host.DialContext(context.Background(), "udp", to)
		v.must(err)
		if err := echoWord(u, strings.Repeat("much to say ", 400)); err != nil {
			t.Errorf("a datagram larger than the pod's MTU from the host to %s: %v", to, err)
		}
		u.Close()
	}
	// Larger than every MTU of the path, both there and back: all fragments follow the first one.
	for to, from := range map[string]*nstest.Node{"192.0.2.1:8080": v.outside,
		"[2001:db8::1]:8080": v.outside, "10.88.0.1:8080": v.b.Node} {
		u, err := from.DialContext(context.Background(), "udp", to)
		v.must(err)
		if err := echoWord(u, strings.Repeat("much to say ", 400)); err != nil {
			t.Errorf("a datagram in fragments to %s: %v", to, err)
		}
		u.Close()
	}
	for _, strict := range []string{"1", "2"} {
		v.must(v.host.SetSysctl("net.ipv4.conf.all.rp_filter", strict))
		for _, to := range []string{"192.0.2.1:8080", "127.0.0.1:8080"} {
			if err := reach(v.host, to); err != nil {
				t.Errorf("from the host, rp_filter %s: %v", strict, err)
			}
		}
	}
	// Nothing passes through the port that is no longer published.
	c, err := dialFrom(v.outside, "192.0.2.1:8080", testTimeout)
	v.must(err)
	defer c.Close()
	v.must(echoWord(c, "before"))
	v.publish(9090, 80)
	if err := echoWordFor(c, "after", shortWait); err == nil {
		t.Error("a connection continues through a port that is no longer published")
	}
	if err := reach(v.outside, "192.0.2.1:9090"); err != nil {
		t.Error(err)
	}
	if _, err := dialFrom(v.outside, "192.0.2.1:8080", testTimeout); !errors.Is(err,
		unix.ECONNREFUSED) {
		t.Errorf("a port that is no longer published: %v", err)
	}
}

func TestHostCallsItsPortsWithoutTCX(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.engine.noTCX = true
	v.publish(8080, 80)
	for _, to := range []string{"192.0.2.1:8080", "[::1]:8080"} {
		if err := reach(v.host, to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	v.must(v.host.Do(func() error { return v.engine.SetPublished(nil) }))
	if err := exchange(v.host, "192.0.2.1:8080"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port that is no longer published: %v", err)
	}
	v.publish(8080, 80)
	v.must(v.host.Do(func() error { return Remove(v.dir) }))
	out, err := v.host.Command("tc", "filter", "show", "dev", "lo", "egress").CombinedOutput()
	if err != nil || strings.Contains(string(out), "weir") {
		t.Errorf("Remove left a filter: %v: %s", err, out)
	}
}

func TestRulesSeePodsBehindPublishedPorts(t *testing.T) {
	t.Parallel()
	v := newCluster(t, `add 1 check-state
add allow tcp from 192.0.2.2 to 10.88.0.2 80 in recv eth0 keep-state
add reset tcp from any to 10.88.0.2 81
add deny ip from any to any
`)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	if err := exchange(v.outside, "192.0.2.1:8080"); err != nil {
		t.Error(err)
	}
	if err := tryExchange(v.b.Node, "192.0.2.1:8080"); err == nil {
		t.Error("b reaches a through the host although no rule allows it")
	}
	if err := tryExchange(v.host, "127.0.0.1:8080"); err == nil {
		t.Error("the host reaches a through its own port although no rule allows it")
	}
	for _, to := range []string{"127.0.0.1:8080", "[::1]:8080"} {
		before := v.counters(v.a)
		u, err := v.host.DialContext(context.Background(), "udp", to)
		v.must(err)
		_, err = u.Write(make([]byte, 4000))
		v.must(err)
		u.Close()
		nstest.Eventually(t, "a datagram that is too large for a is refused", func() bool {
			return v.counters(v.a).DropsIn > before.DropsIn
		})
		if after := v.counters(v.a); after.PacketsIn != before.PacketsIn {
			t.Errorf("a large datagram of the host's to %s reached a although no rule allows it: "+
				"%+v", to, after)
		}
	}
	// The answer comes from where the call went to.
	v.publish(8081, 81)
	if _, err := dialFrom(v.outside, "192.0.2.1:8081", testTimeout); !errors.Is(err,
		unix.ECONNREFUSED) {
		t.Errorf("a published port that the rules reset: %v", err)
	}
}

func TestMasquerade(t *testing.T) { masqueraded(t, newCluster(t, openRules)) }

func masqueraded(t *testing.T, v *cluster) {
	v.masquerade(61000, 61999)
	v.serve(v.outside, 80)
	seen := make(chan netip.AddrPort, 10)
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := v.outside.Listen(network, ":99")
		v.must(err)
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				seen <- c.RemoteAddr().(*net.TCPAddr).AddrPort()
				c.Close()
			}
		}()
	}
	for to, want := range map[string]string{"192.0.2.2:99": "192.0.2.1",
		"[2001:db8::2]:99": "2001:db8::1"} {
		c, err := dialFrom(v.a.Node, to, testTimeout)
		v.must(err)
		c.Close()
		from := <-seen
		if from.Addr().Unmap().String() != want || from.Port() < 61000 || from.Port() > 61999 {
			t.Errorf("the outside saw %s, not %s with a port of the range", from, want)
		}
	}
	for _, to := range []string{"192.0.2.2:80", "[2001:db8::2]:80"} {
		if err := reach(v.a.Node, to); err != nil {
			t.Error(err)
		}
	}
	for _, to := range []string{"192.0.2.2", "2001:db8::2"} {
		if err := ping(v.a.Node, to); err != nil {
			t.Error(err)
		}
		if err := ping(v.a.Node, "-s", "4000", to); err != nil {
			t.Errorf("in fragments: %v", err)
		}
		// A port without a server: the error comes back translated.
		u, err := v.a.DialContext(context.Background(), "udp", net.JoinHostPort(to, "7"))
		v.must(err)
		u.SetDeadline(time.Now().Add(testTimeout))
		u.Write([]byte("anybody?"))
		if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a closed port of %s: %v", to, err)
		}
		u.Close()
	}
	for _, s := range v.states() {
		if s.From.Addr() == netip.MustParseAddr("192.0.2.1") && s.To.Port() == 80 {
			t.Errorf("rules saw a packet after its translation: %+v", s)
		}
	}
}

func TestMasqueradeWithoutPorts(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.masquerade(61000, 61001)
	v.serve(v.outside, 80)
	var open []net.Conn
	for range 2 {
		c, err := dialFrom(v.a.Node, "192.0.2.2:80", testTimeout)
		v.must(err)
		defer c.Close()
		open = append(open, c)
	}
	if c, err := dialFrom(v.b.Node, "192.0.2.2:80", 500*time.Millisecond); err == nil {
		c.Close()
		t.Error("a third connection through two ports")
	}
	if v.drops(firewall.ReasonNATPorts) == 0 {
		t.Error("nothing was dropped for want of ports")
	}
	echoEach(t, open, "still here")
	// When a goes, so do its translations, and b gets a port.
	v.must(v.engine.DeleteEndpoint(v.a.endpoint.Index))
	c, err := dialFrom(v.b.Node, "192.0.2.2:80", testTimeout)
	if err != nil {
		t.Fatalf("after a is gone: %v", err)
	}
	c.Close()
}

func TestMasqueradeKeepsHostPorts(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.masquerade(61000, 61001)
	v.serve(v.outside, 80)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 61000},
		Timeout: testTimeout}
	var own net.Conn
	v.must(v.host.Do(func() (err error) { own, err = d.Dial("tcp", "192.0.2.2:80"); return err }))
	defer own.Close()
	for range 2 {
		if c, err := dialFrom(v.a.Node, "192.0.2.2:80", 500*time.Millisecond); err == nil {
			defer c.Close()
		}
	}
	if err := echoWord(own, "mine"); err != nil {
		t.Errorf("the host's own connection: %v", err)
	}
}

func TestMasqueradeLeavesRepliesAlone(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{openRules, "add allow ip from any to any\n"} {
		v := newCluster(t, rules)
		v.masquerade(61000, 61999)
		v.serve(v.a.Node, 80)
		v.serve(v.outside, 80)
		v.succeed(rules, map[string]error{
			"tcp to the pod itself":    exchange(v.outside, "10.88.0.2:80"),
			"ping of the pod itself":   ping(v.outside, "10.88.0.2"),
			"in fragments":             ping(v.outside, "-s", "4000", "10.88.0.2"),
			"tcp to the pod itself, 6": exchange(v.outside, "[fd00:88::2]:80"),
			"and out as before":        exchange(v.a.Node, "192.0.2.2:80"),
		})
	}
}

// TestErrorsThroughPublishedPorts: what the pod has to complain about reaches the client as if the
// host had said it.
func TestErrorsThroughPublishedPorts(t *testing.T) {
	v := newCluster(t, openRules)
	v.publish(8080, 80) // where no socket listens
	for _, call := range []struct {
		from *nstest.Node
		to   string
	}{
		{v.outside, "192.0.2.1:8080"}, {v.outside, "[2001:db8::1]:8080"},
		{v.b.Node, "192.0.2.1:8080"}, {v.b.Node, "[2001:db8::1]:8080"},
		{v.a.Node, "192.0.2.1:8080"}, {v.a.Node, "[2001:db8::1]:8080"}, {v.host, "192.0.2.1:8080"},
		{v.host, "[2001:db8::1]:8080"}, {v.host, "127.0.0.1:8080"},
	} {
		if _, err := dialFrom(call.from, call.to, testTimeout); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("tcp from %s to %s: %v", call.from, call.to, err)
		}
		u, err := call.from.DialContext(context.Background(), "udp", call.to)
		v.must(err)
		u.SetDeadline(time.Now().Add(testTimeout))
		u.Write([]byte("anybody?"))
		if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("udp from %s to %s: %v", call.from, call.to, err)
		}
		u.Close()
	}
}

// TestOwnConnectionsAtPublishedPorts: the host's own connections work whose ports are published,
// too, as the kernel may choose any port for them. They are with other hosts, with pods and with
// the host itself, also over UDP sockets that are not connected, where rules keep states.
func TestOwnConnectionsAtPublishedPorts(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{"stateless": "add allow ip from any to any\n",
		"stateful": "add allow ip from any to any keep-state\n"} {
		t.Run(name, func(t *testing.T) {
			v := newCluster(t, rules)
			for _, n := range []*nstest.Node{v.outside, v.b.Node, v.host} {
				v.serve(n, 90)
			}
			v.publish(8080, 80)
			for from, to := range map[string]string{"192.0.2.1:8080": "192.0.2.2:90",
				"[2001:db8::1]:8080": "[2001:db8::2]:90", "10.88.0.1:8080": "10.88.0.3:90",
				"[fd00:88::1]:8080": "[fd00:88::3]:90", "127.0.0.1:8080": "127.0.0.1:90",
				"[::1]:8080": "[::1]:90"} {
				own := netip.MustParseAddrPort(from).Addr().IsLoopback() // without states
				v.talkFrom(t, from, to, name == "stateful" && !own)
			}
		})
	}
}

// talkFrom has the host talk from one of its ends: over TCP, over a connected UDP socket, and
// perhaps over one that is not.
func (v *cluster) talkFrom(t *testing.T, from, to string, unconnected bool) {
	t.Helper()
	a := netip.MustParseAddrPort(from)
	for network, local := range map[string]net.Addr{"tcp": net.TCPAddrFromAddrPort(a),
		"udp": net.UDPAddrFromAddrPort(a)} {
		d := net.Dialer{LocalAddr: local, Timeout: testTimeout}
		err := v.host.Do(func() error {
			c, err := d.Dial(network, to)
			if err != nil {
				return err
			}
			defer c.Close()
			return echoWord(c, "word")
		})
		if err != nil {
			t.Errorf("%s from %s to %s: %v", network, from, to, err)
		}
	}
	if !unconnected {
		return
	}
	c, err := v.host.ListenPacket("udp", from)
	v.must(err)
	defer c.Close()
	v.must(c.SetDeadline(time.Now().Add(testTimeout)))
	_, err = c.WriteTo([]byte("word"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	v.must(err)
	if _, _, err := c.ReadFrom(make([]byte, 10)); err != nil {
		t.Errorf("udp from %s to %s, not connected: %v", from, to, err)
	}
}

// TestPublishedPortWithoutPod: a start takes pods that are gone away before their ports. Until then
// nothing passes: the rules would decide about the pod, and a socket of the host would get it.
func TestPublishedPortWithoutPod(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	f.publish(8080, 80)
	f.must(f.engine.DeleteEndpoint(f.a.endpoint.Index))
	to, drops := netip.AddrPortFrom(hostAddr, 8080), uint64(0)
	dropped := func(from netip.Addr, code int32) {
		t.Helper()
		drops++
		if n := f.drops(firewall.ReasonNoBackend); code != wasShot || n != drops {
			t.Errorf("from %s: %d, %d drops, not %d", from, code, n, drops)
		}
	}
	for _, from := range []netip.Addr{outsideAddr, podB} {
		code, _, _ := f.send(netip.AddrPortFrom(from, 4000), to,
			build.TCP{Seq: 1, Flags: packet.FlagSYN, Window: 1000})
		dropped(from, code)
	}
	_, frame := f.frame(netip.AddrPortFrom(hostAddr, 4000), to,
		build.TCP{Seq: 1, Flags: packet.FlagSYN, Window: 1000}, 0)
	code, _ := f.run(f.engine.objects.WeirLocal, loopback, loopback, frame)
	dropped(hostAddr, code)
}

// TestErrorsOfTheHostToPods: the host says of the path to a published port that a datagram is too
// large for the pod, or its TTL too small. This quotes to a pod what the pod has sent, as to
// others.
func TestErrorsOfTheHostToPods(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	f.publish(8080, 80)
	client, port := netip.AddrPortFrom(podB, 4000), netip.AddrPortFrom(hostAddr, 8080)
	if code, _, dst := f.send(client, port, build.UDP{}); code != redirected ||
		dst != netip.AddrPortFrom(podA, 80) {
		t.Fatalf("the datagram: %d to %s", code, dst)
	}
	for _, typ := range []uint8{3, 11} {
		quote := enginetest.Packet(t, build.IPv4{Src: podB, Dst: podA},
			build.UDP{SrcPort: 4000, DstPort: 80})
		icmp := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("10.88.0.1"), Dst: podB},
			build.ICMP{Type: typ}, build.Data(quote))
		at := f.podLinks[podB]
		code, out := f.run(f.engine.objects.WeirOut, 0, at.index,
			slices.Concat(at.mac[:], []byte{2, 0, 0, 0, 0, 9, 8, 0}, icmp))
		const quoted = 14 + 20 + 8
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[quoted+16:])),
			binary.BigEndian.Uint16(out[quoted+22:]))
		if code != wentUp || to != port {
			t.Errorf("type %d: %d, about what went to %s, not %s", typ, code, to, port)
		}
	}
}
