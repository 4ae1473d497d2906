package kernel

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// BenchmarkPolicies measures a search among IPsec policies that finds none, as that of a SYN of a
// flood. The policies are between single hosts, of 1,024 pairs of prefix lengths, or between the
// same networks and exempt a port each. Run with -cpu 1 -benchtime 1x.
func BenchmarkPolicies(b *testing.B) {
	nstest.RequireRoot(b)
	e, err := Open(Config{Options: firewall.DefaultOptions()})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	defer e.Close()
	asks := e.askingProgram(b)
	q := policyQuery{src: netip.MustParseAddr("192.0.2.1"), dst: netip.MustParseAddr("10.0.0.1"),
		proto: packet.ProtoTCP, answer: true}
	prefix := func(a, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(a >> 8), byte(a)}), bits)
	}
	for _, c := range []struct {
		name     string
		policyAt func(i int) Policy
	}{
		{"hosts", func(i int) Policy {
			return Policy{Src: netip.PrefixFrom(q.dst, 32), Dst: prefix(i, 32), Protects: true}
		}},
		{"lengths", func(i int) Policy {
			return Policy{Src: prefix(i, 1+i%32), Dst: prefix(i, 1+i/32%32), Protects: true}
		}},
		{"ports", func(i int) Policy {
			if i == 0 { // without one that protects something there is no search
				return Policy{Src: prefix(0, 32), Dst: prefix(0, 32), Protects: true}
			}
			any := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			return Policy{Src: any, Dst: any, Proto: packet.ProtoTCP, Ports: uint32(i),
				PortsMask: 0xffff}
		}},
	} {
		for _, n := range []int{0, 1, 16, 256, maxPolicies} {
			var all []Policy
			for i := range n {
				all = append(all, c.policyAt(i))
			}
			if err := e.SetStack(false, all); err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportMetric(leastOf(b, asks, q.bytes()), "ns/search")
			})
		}
	}
}
