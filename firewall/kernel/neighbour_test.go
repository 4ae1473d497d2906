package kernel

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// advertises is a neighbour advertisement with a text behind it, in a frame.
func advertises(t *testing.T, to, by net.HardwareAddr, src, dst netip.Addr, text string) []byte {
	t.Helper()
	ip := enginetest.Packet(t, build.IPv6{Src: src, Dst: dst, HopLimit: 255},
		build.ICMPv6{Type: 136}, build.Data(append(src.AsSlice(), text...)))
	return slices.Concat(to, by, []byte{0x86, 0xdd}, ip)
}

// TestNeighbourDiscoveryEndsAtTheHost: neighbour discovery passes before the rules because it
// concerns one link. What is forwarded to a pod is evaluated by the rules, as it is in the stack,
// which would have lowered the hop limit before.
func TestNeighbourDiscoveryEndsAtTheHost(t *testing.T) {
	t.Parallel()
	v := newCluster(t, "add 100 deny ip from any to any\n")
	nic := v.host.Link("eth0")
	a, b := v.a.endpoint, v.b.endpoint
	c, err := v.b.ListenPacket("ip6:ipv6-icmp", "::")
	v.must(err)
	defer c.Close()
	received := func(text string, most time.Duration) bool {
		buf := make([]byte, 1500)
		v.must(c.SetReadDeadline(time.Now().Add(most)))
		for {
			n, _, err := c.ReadFrom(buf)
			if err != nil {
				return false
			}
			if slices.Equal(buf[max(0, n-len(text)):n], []byte(text)) {
				return true
			}
		}
	}
	sendWord := func(text string) {
		v.must(inject(v.a.Node, [][]byte{advertises(t, a.HostMAC[:], a.MAC[:], a.Addrs[1],
			b.Addrs[1], "pod "+text)}))
		v.must(inject(v.outside, [][]byte{advertises(t, nic.HardwareAddr, []byte{2, 0, 0, 0, 0, 9},
			netip.MustParseAddr("2001:db8::2"), b.Addrs[1], "NIC "+text)}))
	}
	denied := v.drops(firewall.ReasonRule)
	sendWord("denied")
	nstest.Eventually(t, "the rules deny both", func() bool {
		return v.drops(firewall.ReasonRule) >= denied+2
	})
	if received("denied", shortWait) {
		t.Error("neighbour discovery crossed to a pod under a rule that denies everything")
	}
	v.must(v.engine.Load(compile(t, "add allow ip from any to any\n")))
	sendWord("allowed")
	if !received("pod allowed", testTimeout) || !received("NIC allowed", testTimeout) {
		t.Error("what the rules allow does not come")
	}
	if err := ping(v.a.Node, "fd00:88::3"); err != nil { // neighbours are still found
		t.Error(err)
	}
}
