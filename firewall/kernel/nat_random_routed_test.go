package kernel

import (
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// routedRules keep states for most, none for questions to port 53, and refuse some packets on their
// way in and some on their way out.
const routedRules = "add 1 check-state\nadd 2 deny ip from any to any 666\n" +
	"add 3 deny udp from 192.0.2.2 4001 to 10.0.5.9 53 out\n" +
	"add 4 deny udp from 10.0.5.9 53 to 192.0.2.2 80 out\n" +
	"add 5 allow udp from any to any 53\nadd 6 allow udp from any 53 to any\n" +
	"add 7 allow tcp from any to any setup keep-state\n" +
	"add 8 allow udp from any to any keep-state\nadd 9 allow icmp from any to any\n" +
	"add 10 deny ip from any to any\n"

// frames makes frames of the cluster, and of the server behind the host.
func (g *gateway) frames() *frames {
	g.t.Helper()
	f := framesOf(g.cluster)
	l := g.host.Link("eth1")
	inside := crossing{index: g.inside}
	copy(inside.mac[:], l.HardwareAddr)
	f.behind = map[netip.Addr]crossing{serverFour: inside}
	return f
}

// TestRoutedTranslationsAgainstTheModel is TestTranslationsAgainstTheModel with a server behind the
// host, to which ports are forwarded, which hides or does not, and which may have an address of the
// host for itself.
func TestRoutedTranslationsAgainstTheModel(t *testing.T) {
	t.Parallel()
	packets := 2000
	if n, err := strconv.Atoi(os.Getenv("WEIR_DECISIONS")); err == nil {
		packets = n
	}
	g := newGateway(t, routedRules)
	f := g.frames()
	f.publish(8080, 80)
	ports := []forward.Published{
		{Proto: packet.ProtoTCP, Host: end(hostAddr, 8088), Pod: end(serverFour, 80)},
		{Proto: packet.ProtoUDP, Host: end(hostAddr, 8088), Pod: end(serverFour, 80)},
		{Proto: packet.ProtoUDP, Host: end(hostAddr, 5454), Pod: end(serverFour, 53)},
		{Proto: packet.ProtoUDP, Host: end(hostAddr, 6667), Pod: end(serverFour, 666)},
	}
	for _, way := range []string{"", "hides", "whole"} {
		hides, whole := way == "hides", map[netip.Addr]netip.Addr(nil)
		m := forward.Masquerade{Sources: podRanges, Except: podRanges,
			Ports: []forward.PortRange{{First: 2000, Last: 2999}}}
		if hides {
			inside := netip.MustParsePrefix("10.0.5.0/24")
			m.Others, m.Near = []forward.SourceNAT{{Source: inside}}, []netip.Prefix{inside}
		}
		if way == "whole" {
			whole = map[netip.Addr]netip.Addr{serverFour: fixed[0]}
			only := netip.PrefixFrom(serverFour, 32)
			m.Others = []forward.SourceNAT{{Source: only, To: fixed[0], Keep: true}}
			m.Near = []netip.Prefix{only}
			ports = append(ports, forward.Published{Host: end(fixed[0], 0),
				Pod: end(serverFour, 0)})
		}
		g.must(g.host.Do(func() error { return g.engine.SetForwards(ports) }))
		g.must(g.engine.SetMasquerade(m))
		f.compare(t, packets/3, 0, routedRules, func() *enginetest.Translator {
			return &enginetest.Translator{Hides: true, HidesBehind: hides, Whole: whole,
				Behind: map[netip.Addr]uint32{serverFour: g.inside},
				Published: map[enginetest.Port]netip.AddrPort{
					{Proto: 6, To: end(hostAddr, 8080)}:  end(podA, 80),
					{Proto: 17, To: end(hostAddr, 8080)}: end(podA, 80),
					{Proto: 6, To: end(hostAddr, 8088)}:  end(serverFour, 80),
					{Proto: 17, To: end(hostAddr, 8088)}: end(serverFour, 80),
					{Proto: 17, To: end(hostAddr, 5454)}: end(serverFour, 53),
					{Proto: 17, To: end(hostAddr, 6667)}: end(serverFour, 666),
				}}
		})
	}
}

// TestRefusedTwiceLeavesNothing: two datagrams of a flow come in before the first leaves, and the
// rules refuse both on their way out. Their translation is gone.
func TestRefusedTwiceLeavesNothing(t *testing.T) {
	t.Parallel()
	g := newGateway(t, routedRules)
	f := g.frames()
	g.must(g.host.Do(func() error {
		return g.engine.SetForwards([]forward.Published{{Proto: packet.ProtoUDP,
			Host: end(hostAddr, 5454), Pod: end(serverFour, 53)}})
	}))
	at, frame := f.frame(end(outsideAddr, 4001), end(hostAddr, 5454), build.UDP{}, 0)
	var passed [][]byte
	for range 2 {
		code, out := f.run(f.engine.objects.WeirIn, 0, at.index, frame)
		x, routed := f.routed(at.index, out)
		if code != wentUp || !routed {
			t.Fatalf("on its way in: %d", code)
		}
		copy(out, x.mac[:])
		passed = append(passed, out)
	}
	if n := len(f.pairs()); n != 1 {
		t.Fatalf("this test could not fail: there are %d translations", n)
	}
	for _, out := range passed {
		code, _ := f.run(f.engine.objects.WeirOut, at.index, f.behind[serverFour].index, out)
		if code != wasShot {
			t.Errorf("on its way out: %d", code)
		}
	}
	if n := len(f.pairs()); n != 0 {
		t.Errorf("%d translations are left", n)
	}
}

// endsBehind chooses between the outside and a server behind the host.
func (m *natMatch) endsBehind(proto packet.Proto) enginetest.Ends {
	r := m.r
	outside := end(outsideAddr, pick(r, 53, 80, 4000, 4001))
	server := end(serverFour, pick(r, 53, 80, 5000, 5001))
	switch r.IntN(4) {
	case 0:
		return enginetest.Ends{Proto: proto, From: outside, To: server}
	case 1:
		return enginetest.Ends{Proto: proto, From: server, To: outside}
	}
	for _, public := range m.model.Whole {
		if r.IntN(2) == 0 {
			return enginetest.Ends{Proto: proto, From: outside,
				To: netip.AddrPortFrom(public, server.Port())}
		}
	}
	return enginetest.Ends{Proto: proto, From: outside,
		To: end(hostAddr, pick(r, 8088, 8088, 5454, 6667, 2000+r.IntN(3)))}
}
