package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

func TestDeniedOnEveryPath(t *testing.T) {
	t.Parallel()
	deniedPaths(t, newCluster(t, deniedRules))
}

const deniedRules = `add 1 check-state
add allow tcp from any to any 80 in keep-state
add deny tcp from any to any 81 in
add deny tcp from any to any 80 out xmit pod:b
add deny tcp from any to any 80 out xmit eth0
add deny ip from any to any
`

func deniedPaths(t *testing.T, v *cluster) {
	for _, n := range []*podNode{v.a, v.b} {
		v.serve(n.Node, 80)
		v.serve(n.Node, 81)
	}
	v.serve(v.outside, 80)
	v.publish(8081, 81)
	for _, w := range []struct {
		what string
		err  error
	}{
		{"pod to pod, denied in", tryExchange(v.b.Node, "10.88.0.2:81")},
		{"NIC to pod, denied in", tryExchange(v.outside, "10.88.0.2:81")},
		{"published, denied in", tryExchange(v.outside, "192.0.2.1:8081")},
	} {
		if w.err == nil {
			t.Errorf("%s: passed", w.what)
		}
	}
	// The state of the ingress lets the same flow out: its rule says allow whatever the interface.
	if err := exchange(v.a.Node, "10.88.0.3:80"); err != nil {
		t.Errorf("pod to pod, allowed in with a state: %v", err)
	}
	v.must(v.engine.Load(compile(t, `add allow tcp from any to any 80 in
add allow tcp from any 80 to any in
add allow tcp from any 80 to any out
add deny tcp from any to any 80 out xmit pod:b
add deny tcp from any to any 80 out xmit eth0
add allow tcp from any to any 80 out
`)))
	if err := tryExchange(v.a.Node, "10.88.0.3:80"); err == nil {
		t.Error("pod to pod, denied out: passed")
	}
	if err := tryExchange(v.a.Node, "192.0.2.2:80"); err == nil {
		t.Error("pod to NIC, denied out: passed")
	}
	if err := tryExchange(v.outside, "10.88.0.3:80"); err == nil {
		t.Error("NIC to pod, denied out: passed")
	}
	if err := exchange(v.outside, "10.88.0.2:80"); err != nil {
		t.Errorf("NIC to pod, allowed: %v", err)
	}
	if n := v.counters(v.b).DropsIn; n < 2 {
		t.Errorf("%d drops on the way to b", n)
	}
}

// TestCaptureHasSpoofedPackets: what is dropped before the rules is in a capture, too.
func TestCaptureHasSpoofedPackets(t *testing.T) {
	t.Parallel()
	v := newCluster(t, "add allow ip from any to any\n")
	v.must(v.a.Netlink().AddAddr(loopback, netip.MustParsePrefix("10.88.0.9/32")))
	frames := make(chan firewall.Captured, 100)
	v.must(v.engine.Capture(func(f *firewall.Captured) {
		one := *f
		one.Data = slices.Clone(f.Data)
		select {
		case frames <- one:
		default:
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- v.host.Do(func() error { return v.engine.Watch(ctx, nil) }) }()
	defer func() { cancel(); <-done }()
	if err := ping(v.a.Node, "-W1", "-I", "10.88.0.9", "10.88.0.3"); err == nil {
		t.Error("a reached b as 10.88.0.9")
	}
	for end := time.After(testTimeout); ; {
		select {
		case f := <-frames:
			if f.Verdict.Reason != firewall.ReasonSpoof {
				continue
			}
			if f.Verdict.Pass || !f.Ethernet || f.Hook.Dir != firewall.In ||
				!bytes.Contains(f.Data, []byte{10, 88, 0, 9, 10, 88, 0, 3}) {
				t.Errorf("%+v", f)
			}
			return
		case <-end:
			t.Fatal("the spoofed packet is not in the capture")
		}
	}
}

func TestSpoofing(t *testing.T) {
	t.Parallel()
	spoofing(t, newCluster(t, "add allow ip from any to any\n"))
}

func spoofing(t *testing.T, v *cluster) {
	v.must(v.a.Netlink().AddAddr(loopback, netip.MustParsePrefix("10.88.0.9/32")))
	v.must(v.a.Netlink().AddAddr(loopback, netip.MustParsePrefix("fd00:88::9/128")))
	for _, from := range []string{"10.88.0.9", "fd00:88::9"} {
		to := map[bool]string{true: "10.88.0.3", false: "fd00:88::3"}[strings.Contains(from, ".")]
		before := v.drops(firewall.ReasonSpoof)
		if err := ping(v.a.Node, "-W1", "-I", from, to); err == nil {
			t.Errorf("a reached b as %s", from)
		}
		if v.drops(firewall.ReasonSpoof) == before {
			t.Errorf("as %s: not counted as spoofing", from)
		}
	}
	if v.counters(v.a).DropsOut < 2 {
		t.Errorf("counters of a: %+v", v.counters(v.a))
	}
	// No host outside is a pod.
	v.must(v.outside.Netlink().AddAddr(loopback, netip.MustParsePrefix("10.88.0.3/32")))
	before := v.drops(firewall.ReasonSpoof)
	if err := ping(v.outside, "-W1", "-I", "10.88.0.3", "10.88.0.2"); err == nil {
		t.Error("the outside reached a as b")
	}
	if v.drops(firewall.ReasonSpoof) == before {
		t.Error("the outside as b: not counted as spoofing")
	}
	// An address that a gets may be used, one that it loses may not.
	e := v.a.endpoint
	e.Addrs = append(e.Addrs, netip.MustParseAddr("10.88.0.9"))
	v.must(v.host.Do(func() error { return v.engine.SetEndpoint(e) }))
	l := v.host.Link("poda")
	v.must(v.host.Netlink().ReplaceRoute(nl.Route{Dst: netip.MustParsePrefix("10.88.0.9/32"),
		Link: l.Index}))
	if err := ping(v.a.Node, "-I", "10.88.0.9", "10.88.0.3"); err != nil {
		t.Error(err)
	}
	v.must(v.host.Do(func() error { return v.engine.SetEndpoint(v.a.endpoint) }))
	if err := ping(v.a.Node, "-W1", "-I", "10.88.0.9", "10.88.0.3"); err == nil {
		t.Error("a continues under an address that was taken away")
	}
}

func TestMartians(t *testing.T) {
	t.Parallel()
	v := newCluster(t, "add allow ip from any to any\n")
	v.must(v.a.Netlink().ReplaceRoute(nl.Route{Dst: netip.MustParsePrefix("127.1.0.0/16"),
		Via: gateways[0], Table: 7}))
	v.must(v.a.SetSysctl("net.ipv4.conf.all.route_localnet", "1"))
	for _, args := range [][]string{
		{"rule", "add", "pref", "0", "lookup", "7"},
		{"rule", "add", "pref", "5", "lookup", "local"},
		{"rule", "del", "pref", "0", "lookup", "local"},
	} {
		v.a.Run("ip", args...)
	}
	if err := ping(v.a.Node, "-W1", "-I", "10.88.0.2", "127.1.2.3"); err == nil {
		t.Error("a reached a loopback address of the host")
	}
	before := v.drops(firewall.ReasonMartian)
	if before == 0 {
		t.Error("nothing was dropped as a martian")
	}
	var frames [][]byte
	for _, to := range []string{"::1", "::"} {
		ip := enginetest.Packet(v.t, build.IPv6{Src: v.a.endpoint.Addrs[1],
			Dst: netip.MustParseAddr(to), HopLimit: 64}, build.UDP{SrcPort: 1, DstPort: 7})
		frames = append(frames, slices.Concat(v.a.endpoint.HostMAC[:], v.a.endpoint.MAC[:],
			[]byte{0x86, 0xdd}, ip))
	}
	v.must(inject(v.a.Node, frames))
	nstest.Eventually(t, "loopback and unspecified addresses of IPv6 are refused", func() bool {
		return v.drops(firewall.ReasonMartian) == before+2
	})
}

func TestHopLimit(t *testing.T) {
	v := newCluster(t, openRules)
	v.masquerade(61000, 61999)
	for _, to := range []string{"192.0.2.2", "2001:db8::2", "10.88.0.3", "fd00:88::3"} {
		out, err := v.a.Command("ping", "-c1", "-W300", "-t1", to).CombinedOutput()
		text := strings.ToLower(string(out))
		if err == nil || !strings.Contains(text, "time to live exceeded") &&
			!strings.Contains(text, "hop limit") {
			t.Errorf("%s with a hop limit of 1: %v: %s", to, err, out)
		}
		out, err = v.a.Command("ping", "-c1", "-W300", "-t2", to).CombinedOutput()
		if err != nil {
			t.Errorf("%s with a hop limit of 2: %v: %s", to, err, out)
		}
	}
	out, err := v.b.Command("ping", "-c1", "-W300", "10.88.0.2").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ttl=63") {
		t.Errorf("one hop away: %v: %s", err, out)
	}
	for _, to := range []string{"10.88.0.2", "fd00:88::2"} {
		out, err := v.outside.Command("ping", "-c1", "-W300", "-t1", to).CombinedOutput()
		text := strings.ToLower(string(out))
		if err == nil || !strings.Contains(text, "time to live exceeded") &&
			!strings.Contains(text, "hop limit") {
			t.Errorf("from outside to %s with a hop limit of 1: %v: %s", to, err, out)
		}
		if out, err := v.outside.Command("ping", "-c1", "-W300", "-t2",
			to).CombinedOutput(); err != nil {
			t.Errorf("from outside to %s with a hop limit of 2: %v: %s", to, err, out)
		}
	}
}

// TestSmallPod: what is larger than a pod's MTU does not reach it, and the sender gets an ICMP
// error.
func TestSmallPod(t *testing.T) {
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	v.host.IP("link set poda mtu 1280")
	v.a.IP("link set eth0 mtu 1280")
	v.a.endpoint.MTU = 1280
	v.must(v.host.Do(func() error { return v.engine.SetEndpoint(v.a.endpoint) }))
	for _, to := range []string{"10.88.0.2", "fd00:88::2"} {
		for _, from := range []*nstest.Node{v.outside, v.b.Node} {
			out, _ := from.Command("ping", "-c1", "-W300", "-s1400", "-Mdo", to).CombinedOutput()
			if text := strings.ToLower(string(out)); !strings.Contains(text, "frag needed") &&
				!strings.Contains(text, "too big") {
				t.Errorf("from %s to %s: no answer that 1400 bytes are too many: %s", from, to, out)
			}
		}
	}
	if err := ping(v.outside, "-s1400", "-Mdont", "10.88.0.2"); err != nil {
		t.Errorf("with leave to fragment: %v", err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<14)
	for _, to := range []string{"10.88.0.2:80", "[fd00:88::2]:80", "192.0.2.1:8080",
		"[2001:db8::1]:8080"} {
		c, err := dialFrom(v.outside, to, testTimeout)
		v.must(err)
		if err := echoText(c, big); err != nil {
			t.Errorf("a long stream to %s: %v", to, err)
		}
		c.Close()
	}
}

// TestErrorsFromRouters: routers behind the NIC answer what a pod sent under the host's address;
// the pod gets their answers, and heeds them.
func TestErrorsFromRouters(t *testing.T) {
	v := newCluster(t, openRules)
	v.masquerade(61000, 61999)
	far := v.lab.Node("far")
	v.lab.Join(v.outside, "far", "198.51.100.1/24 2001:db8:1::1/64", far, "eth0",
		"198.51.100.2/24 2001:db8:1::2/64")
	for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		v.must(v.outside.SetSysctl(key, "1"))
	}
	v.host.Route("198.51.100.0/24", "192.0.2.2")
	v.host.Route("2001:db8:1::/64", "2001:db8::2")
	far.Route("192.0.2.0/24", "198.51.100.1")
	far.Route("2001:db8::/64", "2001:db8:1::1")
	v.serve(far, 80)
	for at, n := range map[string]*nstest.Node{"far": v.outside, "eth0": far} {
		n.IP("link set " + at + " mtu 1280")
	}
	for _, to := range []string{"198.51.100.2", "2001:db8:1::2"} {
		out, err := v.a.Command("ping", "-c1", "-W300", "-t2", to).CombinedOutput()
		if text := strings.ToLower(string(out)); err == nil ||
			!strings.Contains(text, "time to live exceeded") &&
				!strings.Contains(text, "hop limit") {
			t.Errorf("%s with a hop limit of 2: %v: %s", to, err, out)
		}
		out, _ = v.a.Command("ping", "-c1", "-W300", "-s1400", "-Mdo", to).CombinedOutput()
		if text := strings.ToLower(string(out)); !strings.Contains(text, "frag needed") &&
			!strings.Contains(text, "too big") {
			t.Errorf("to %s: no answer that 1400 bytes are too many: %s", to, out)
		}
	}
	big := strings.Repeat("0123456789abcdef", 1<<14)
	for _, to := range []string{"198.51.100.2:80", "[2001:db8:1::2]:80"} {
		c, err := dialFrom(v.a.Node, to, testTimeout)
		v.must(err)
		if err := echoText(c, big); err != nil {
			t.Errorf("a long stream to %s: %v", to, err)
		}
		c.Close()
	}
}

func TestSmallLink(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.outside, 80)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	v.host.IP("link set eth0 mtu 1280")
	v.masquerade(61000, 61999)
	for _, to := range []string{"192.0.2.2", "2001:db8::2"} {
		args := []string{"ping", "-c1", "-W300", "-s1400", "-Mdo", to}
		out, _ := v.a.Command(args[0], args[1:]...).CombinedOutput()
		if text := strings.ToLower(string(out)); !strings.Contains(text, "frag needed") &&
			!strings.Contains(text, "too big") {
			t.Errorf("to %s: no answer that 1400 bytes are too many: %s", to, out)
		}
	}
	// a veth drops what is larger than the MTU of its other end
	v.outside.IP("link set eth0 mtu 1280")
	if err := ping(v.a.Node, "-s1400", "-Mdont", "192.0.2.2"); err != nil {
		t.Errorf("with leave to fragment: %v", err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<14)
	for _, to := range []string{"192.0.2.2:80", "[2001:db8::2]:80"} {
		c, err := dialFrom(v.a.Node, to, testTimeout)
		v.must(err)
		if err := echoText(c, big); err != nil {
			t.Errorf("a long stream to %s: %v", to, err)
		}
		c.Close()
	}
	// From outside: the pod's answers are too big for the NIC.
	for _, to := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080", "10.88.0.2:80"} {
		c, err := dialFrom(v.outside, to, testTimeout)
		v.must(err)
		if err := echoText(c, big); err != nil {
			t.Errorf("a long stream to %s: %v", to, err)
		}
		c.Close()
	}
}

func TestFastPathOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.serve(v.outside, 80)
	v.publish(8080, 80)
	v.masquerade(61000, 61999)
	c, err := dialFrom(v.outside, "192.0.2.1:8080", testTimeout)
	v.must(err)
	defer c.Close()
	v.must(echoWord(c, "before"))
	v.must(v.engine.Close())
	for _, w := range []error{
		echoWord(c, "the process is gone"), exchange(v.b.Node, "10.88.0.2:80"),
		exchange(v.b.Node, "192.0.2.2:80"), exchange(v.outside, "192.0.2.1:8080"),
		exchange(v.host, "127.0.0.1:8080"),
	} {
		if w != nil {
			t.Errorf("the process is gone: %v", w)
		}
	}
	v.open()
	v.must(v.engine.Load(compile(t, openRules)))
	v.must(v.engine.SetInterfaces(v.ifs))
	before := v.counters(v.a)
	if before.PacketsIn == 0 {
		t.Error("counters began again")
	}
	for _, w := range []error{echoWord(c, "after"), exchange(v.b.Node, "192.0.2.2:80"),
		exchange(v.host, "127.0.0.1:8080")} {
		if w != nil {
			t.Errorf("after the next engine took over: %v", w)
		}
	}
	if now := v.counters(v.a); now.PacketsIn <= before.PacketsIn {
		t.Errorf("counters stand still: %+v, %+v", before, now)
	}
	v.must(v.host.Do(func() error { return v.engine.SetPublished(nil) }))
	if err := tryExchange(v.host, "127.0.0.1:8080"); err == nil {
		t.Error("the host reaches a port that is no longer published")
	}
}

func TestRemovedPodTakesItsStates(t *testing.T) {
	t.Parallel()
	// Only openings make states: what is still on its way when the pod goes must make none.
	v := newCluster(t,
		"add 1 check-state\nadd allow tcp from any to any setup keep-state\n"+
			"add allow ip from any to any\n")
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	for _, err := range []error{exchange(v.b.Node, "10.88.0.2:80"),
		exchange(v.outside, "192.0.2.1:8080"),
		exchange(v.host, "10.88.0.2:80")} {
		v.must(err)
	}
	v.must(v.engine.DeleteEndpoint(v.a.endpoint.Index))
	v.must(v.engine.DeleteEndpoint(v.a.endpoint.Index))
	for x, err := range v.engine.entries() {
		v.must(err)
		for _, a := range v.a.endpoint.Addrs {
			if addrOf(x.addr[0], x.addr[1]) == a || addrOf(x.addr[2], x.addr[3]) == a ||
				x.sides[0].Rule == natRule {
				t.Errorf("left: %v %v, rule %x", addrOf(x.addr[0], x.addr[1]),
					addrOf(x.addr[2], x.addr[3]), x.sides[0].Rule)
			}
		}
	}
	all, err := v.engine.Endpoints()
	v.must(err)
	if len(all) != 1 || all[0].Index != v.b.endpoint.Index {
		t.Errorf("pods left: %+v", all)
	}
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	e := v.a.endpoint
	e.Rates = forward.Rates{In: 8e6, InBurst: 100_000} // a megabyte per second
	v.must(v.host.Do(func() error { return v.engine.SetEndpoint(e) }))
	c, err := dialFrom(v.b.Node, "10.88.0.2:80", testTimeout)
	v.must(err)
	defer c.Close()
	const size = 3 << 20
	begin := time.Now()
	v.must(echoText(c, strings.Repeat("x", size)))
	took := time.Since(begin)
	if rate := size / took.Seconds(); rate > 1.3e6 {
		t.Errorf("%.0f bytes/s under a limit of 1,000,000", rate)
	}
	if v.drops(firewall.ReasonRate) == 0 || v.counters(v.a).DropsIn == 0 {
		t.Error("no drop was counted")
	}
}

func TestEndpointsAreChecked(t *testing.T) {
	v := newCluster(t, openRules)
	good := v.a.endpoint
	for what, spoil := range map[string]func(*forward.Endpoint){
		"no interface": func(e *forward.Endpoint) { e.Index = 0 },
		"no address":   func(e *forward.Endpoint) { e.Addrs = nil },
		"a multicast one": func(e *forward.Endpoint) {
			e.Addrs = []netip.Addr{netip.MustParseAddr("224.0.0.1")}
		},
		"an MTU of 0":      func(e *forward.Endpoint) { e.MTU = 0 },
		"no such an index": func(e *forward.Endpoint) { e.Index = 4711 },
	} {
		e := good
		spoil(&e)
		if err := v.host.Do(func() error { return v.engine.SetEndpoint(e) }); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for what, p := range map[string]forward.Published{
		"SCTP under another port": {Proto: 132, Host: netip.MustParseAddrPort("0.0.0.0:1"),
			Pod: netip.MustParseAddrPort("10.88.0.2:2")},
		"ICMP": {Proto: 1, Host: netip.MustParseAddrPort("0.0.0.0:1"),
			Pod: netip.MustParseAddrPort("10.88.0.2:1")},
		"another family": {Proto: 6, Host: netip.MustParseAddrPort("[::]:1"),
			Pod: netip.MustParseAddrPort("10.88.0.2:1")},
		"port 0": {Proto: 6, Host: netip.MustParseAddrPort("0.0.0.0:0"),
			Pod: netip.MustParseAddrPort("10.88.0.2:1")},
	} {
		if err := v.engine.SetPublished([]forward.Published{p}); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if err := v.engine.SetMasquerade(forward.Masquerade{Sources: podRanges}); err == nil {
		t.Error("masquerade without ports: accepted")
	}
	if err := errors.Join(exchange(v.a.Node, "10.88.0.3:1"), nil); err == nil ||
		strings.Contains(fmt.Sprint(err), "timeout") {
		t.Errorf("b does not answer: %v", err)
	}
}
