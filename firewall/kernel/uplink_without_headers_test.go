package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// The addresses of the host and of the outside at ppp0.
var (
	pppHost = []netip.Prefix{netip.MustParsePrefix("198.18.5.1/24"),
		netip.MustParsePrefix("2001:db8:5::1/64")}
	pppOutside = []netip.Prefix{netip.MustParsePrefix("198.18.5.2/24"),
		netip.MustParsePrefix("2001:db8:5::2/64")}
)

// addPPP gives the host a second uplink to the outside, without Ethernet headers: ppp0 on both.
func (v *cluster) addPPP(t *testing.T) {
	t.Helper()
	near, index := tunOf(t, v.host, "ppp0", unix.ARPHRD_PPP, pppHost[0].String())
	far, other := tunOf(t, v.outside, "ppp0", unix.ARPHRD_PPP, pppOutside[0].String())
	go copyPackets(near, far)
	go copyPackets(far, near)
	v.must(v.host.Netlink().AddAddr(int(index), pppHost[1]))
	v.must(v.outside.Netlink().AddAddr(int(other), pppOutside[1]))
	v.addInterface("ppp0", pppHost[0].String()+" "+pppHost[1].String())
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(index); return err }))
}

// copyPackets gives what leaves by one tun device to another one, until they are closed.
func copyPackets(from, to *os.File) {
	b := make([]byte, 65536)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		to.Write(b[:n]) // one that is refused is lost, as on a wire
	}
}

// exchangeData talks to an echo server in every way: little, much, and a datagram in fragments.
func exchangeData(n *nstest.Node, to string) error {
	if err := reach(n, to); err != nil {
		return err
	}
	u, err := n.DialContext(context.Background(), "udp", to)
	if err != nil {
		return err
	}
	defer u.Close()
	if err := echoWord(u, strings.Repeat("much to say ", 400)); err != nil {
		return err
	}
	c, err := dialFrom(n, to, testTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	return echoText(c, strings.Repeat("much to say ", 40_000))
}

// refused calls a port where no socket listens, and checks that the client hears of it.
func (v *cluster) refused(n *nstest.Node, to string) {
	v.t.Helper()
	if err := exchange(n, to); !errors.Is(err, unix.ECONNREFUSED) {
		v.t.Errorf("tcp to %s: %v", to, err)
	}
	u, err := n.DialContext(context.Background(), "udp", to)
	v.must(err)
	defer u.Close()
	u.SetDeadline(time.Now().Add(testTimeout))
	u.Write([]byte("question"))
	if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
		v.t.Errorf("udp to %s: %v", to, err)
	}
}

// TestUplinkWithoutHeaders: at an uplink without Ethernet headers pods are masqueraded, and their
// published ports answer, whether rules keep states or not.
func TestUplinkWithoutHeaders(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{openRules, "add allow ip from any to any\n"} {
		v := newCluster(t, rules)
		v.addPPP(t)
		v.serve(v.outside, 80)
		v.serve(v.a.Node, 80)
		v.masquerade(2000, 3000)
		v.publish(8080, 80)
		for i := range pppHost {
			own, far := pppHost[i].Addr(), pppOutside[i].Addr()
			v.masqueraded(netip.AddrPortFrom(far, 9000).String(), own)
			v.refused(v.a.Node, netip.AddrPortFrom(far, 81).String())
			published := netip.AddrPortFrom(own, 8080).String()
			v.succeed(far.String(), map[string]error{
				"from a pod":         exchangeData(v.a.Node, netip.AddrPortFrom(far, 80).String()),
				"ping":               ping(v.a.Node, far.String()),
				"published":          exchangeData(v.outside, published),
				"published, a pod":   reach(v.b.Node, published),
				"published, host":    reach(v.host, published),
				"the host itself":    reach(v.host, netip.AddrPortFrom(far, 80).String()),
				"the other uplink":   reach(v.a.Node, outsideAt[i]),
				"published at other": reach(v.outside, forwardedAt[i]),
			})
		}
	}
}

// TestBehindAnUplinkWithoutHeaders: there others behind the host are translated, too, by rules with
// nat and by the settings.
func TestBehindAnUplinkWithoutHeaders(t *testing.T) {
	t.Parallel()
	g := newHidden(t, openRules)
	g.addPPP(t)
	g.serve(g.outside, 80)
	g.serve(g.server, 80)
	g.hide(netip.Addr{}, netip.Addr{})
	g.forward(8080, 80)
	check := func(what string, families int) {
		t.Helper()
		for i := range pppHost[:families] {
			own, far := pppHost[i].Addr(), pppOutside[i].Addr()
			if err := exchangeData(g.server, netip.AddrPortFrom(far, 80).String()); err != nil {
				t.Errorf("%s, to %s: %v", what, far, err)
			}
			if err := ping(g.server, far.String()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := exchangeData(g.outside, netip.AddrPortFrom(own, 8080).String()); err != nil {
				t.Errorf("%s, from %s: %v", what, far, err)
			}
		}
	}
	check("settings", 2)
	g.awaitClosed()
	g.hide()
	g.must(g.host.Do(func() error { return g.engine.SetForwards(nil) }))
	g.must(g.engine.Load(compile(t, "nat 1 config if ppp0 redirect_port tcp 10.0.5.9:80 8080 "+
		"redirect_port udp 10.0.5.9:80 8080\nadd nat 1 ip from any to any via ppp0\n"+
		"add allow ip from any to any\n")))
	check("rules", 1)
}

// TestMasqueradeOverInfiniband: the egress hook of an uplink of IPoIB masquerades pods.
func TestMasqueradeOverInfiniband(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	_, index := tunOf(t, v.host, "ib0", unix.ARPHRD_INFINIBAND, "198.18.6.1/24")
	v.addInterface("ib0", "198.18.6.1/24")
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(index); return err }))
	v.masquerade(2000, 3000)
	b := enginetest.Packet(t, build.IPv4{Src: podA, Dst: netip.MustParseAddr("198.18.6.2")},
		build.UDP{SrcPort: 2500, DstPort: 53}, build.Data("question"))
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[40:], index)
	out := make([]byte, l2Infiniband+len(b)+64)
	v.must(v.host.Do(func() error {
		o := &ebpf.RunOptions{Data: infinibandFrame(nil, b), DataOut: out, Context: context}
		code, err := v.engine.objects.WeirOutIb.Run(o)
		if int32(code) != wentUp {
			t.Errorf("it returns %d", int32(code))
		}
		out = o.DataOut
		return err
	}))
	src := netip.AddrFrom4([4]byte(out[l2Infiniband+12:]))
	if src != netip.MustParseAddr("198.18.6.1") {
		t.Errorf("it leaves as from %s", src)
	}
}
