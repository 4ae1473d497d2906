package kernel

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// TestLongFrameFromAValidSource: with rp_filter, a frame that is longer than the MTU of the
// interface to its source says nothing about other packets from there.
func TestLongFrameFromAValidSource(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	f.setNIC(false, firewall.ReverseStrict)
	from, to := end(outsideAddr, 9), end(podA, 9)
	f.must(onFirstCPU(func() error {
		long, _, _ := f.sendData(from, to, build.UDP{}, 1600)
		short, _, _ := f.sendData(from, to, build.UDP{}, 100)
		if long != wentUp || short != redirected {
			t.Errorf("a frame of 1642 bytes: %d, one of 142: %d", long, short)
		}
		return nil
	}))
}

// TestSourceRouteByTOS: with rp_filter, the route back to a source may depend on the TOS. What a
// packet with one TOS shows says nothing about those with others.
func TestSourceRouteByTOS(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	f.setNIC(false, firewall.ReverseStrict)
	f.host.IP("rule add tos 0x10 table 100")
	f.host.IP("route add unreachable " + outsideAddr.String() + " table 100")
	f.must(onFirstCPU(func() error {
		for range 2 {
			for _, c := range []struct {
				tos  byte
				want int32
			}{{0, redirected}, {1, redirected}, {0x10, wentUp}, {0x11, wentUp}} {
				at, frame := f.frame(end(outsideAddr, 9), end(podA, 9), build.UDP{}, 100)
				frame[15] = c.tos
				if code, _ := f.run(f.engine.objects.WeirIn, 0, at.index, frame); code != c.want {
					t.Errorf("TOS %#x: %d, not %d", c.tos, code, c.want)
				}
			}
		}
		return nil
	}))
}

// TestOwnAddressNeedsNoRoute: a packet with an address of the interface by which it comes in is
// refused without a look-up of a route. The engine alone knows the address here, so a route would
// lead elsewhere.
func TestOwnAddressNeedsNoRoute(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	own := netip.MustParseAddr("192.0.2.9")
	for i := range f.ifs {
		if in := &f.ifs[i]; in.Name == "eth0" {
			in.Addrs = append(in.Addrs, netip.PrefixFrom(own, 24))
		}
	}
	f.must(f.engine.SetInterfaces(f.ifs))
	for _, to := range []netip.Addr{hostAddr, podA} {
		if code, _, _ := f.send(end(own, 9), end(to, 9), build.UDP{}); code != wasShot {
			t.Errorf("to %s: %d", to, code)
		}
	}
	if n := f.drops(firewall.ReasonSpoof); n != 2 {
		t.Errorf("%d packets were refused for their source, not 2", n)
	}
}
