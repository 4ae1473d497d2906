package enginetest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// RunRouter sends to the addresses that routers of a network have beside their own. They are the
// host's where it is a router, as the kernel takes these packets.
func RunRouter(t *testing.T, e Subject) {
	t.Helper()
	const rules = "add 1 deny ip from any to me\nadd 2 allow ip from any to any"
	if err := e.Load(replaceProgram(t, rules)); err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Prefix{netip.MustParsePrefix("2001:db8::5/64"),
		netip.MustParsePrefix("2001:db8:2::3/127"), netip.MustParsePrefix("10.0.0.1/24")}
	for _, c := range []struct {
		router bool
		to     string
		pass   bool
	}{
		{false, "2001:db8::", true}, {true, "2001:db8::", false}, {true, "2001:db8::5", false},
		{true, "2001:db8::6", true}, {true, "2001:db8:2::2", true}, {true, "10.0.0.0", true},
		{false, "2001:db8::", true},
	} {
		if err := e.SetInterfaces([]firewall.Interface{{Index: 1, Name: "eth0", Addrs: addrs,
			Router6: c.router}}); err != nil {
			t.Fatal(err)
		}
		dst := netip.MustParseAddr(c.to)
		var head build.Layer = build.IPv6{Src: netip.MustParseAddr("2001:db8:f::1"), Dst: dst}
		if dst.Is4() {
			head = build.IPv4{Src: netip.MustParseAddr("198.51.100.1"), Dst: dst}
		}
		b, err := build.Packet(head, build.UDP{SrcPort: 4000, DstPort: 53})
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Evaluate(&firewall.Input{Now: time.Second, Hook: firewall.Hook{Recv: 1}}, b)
		if err != nil || v.Pass != c.pass {
			t.Errorf("router %t, to %s: %+v, %v", c.router, c.to, v, err)
		}
	}
}
