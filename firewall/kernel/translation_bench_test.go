package kernel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// BenchmarkTranslation measures one run of the program for a packet of an established connection
// that is translated, and for one that is not. It is the least of many runs, each with one system
// call. Run with -cpu 1 -benchtime 1x.
func BenchmarkTranslation(b *testing.B) {
	v := newCluster(b, openRules)
	v.masquerade(2000, 3000)
	v.publish(8080, 80)
	l := v.host.Link("eth0")
	nic := crossing{index: uint32(l.Index)}
	copy(nic.mac[:], l.HardwareAddr)
	v.must(v.host.Command("ping", "-c", "1", "-W", "2", "192.0.2.2").Run())
	podLink := crossing{v.a.endpoint.Index, v.a.endpoint.HostMAC}
	a, outside, host := v.a.endpoint.Addrs[0], netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name          string
		at            crossing
		from, to      netip.Addr
		sport, dport  uint16
		back          crossing
		answers       netip.Addr
		aport, toPort uint16
	}{
		{"hidden", podLink, a, outside, 2500, 7, nic, outside, 7, 2500},
		{"published", nic, outside, host, 5000, 8080, podLink, a, 80, 5000},
		{"neither", nic, outside, a, 5001, 81, podLink, a, 81, 5001},
	} {
		b.Run(c.name, func(b *testing.B) {
			v.t = b
			answersTo := host
			if c.name != "hidden" {
				answersTo = outside
			}
			v.pass(c.at, c.from, c.to, build.TCP{SrcPort: c.sport, DstPort: c.dport,
				Flags: packet.FlagSYN, Window: 1000}, 1)
			v.pass(c.back, c.answers, answersTo,
				build.TCP{SrcPort: c.aport, DstPort: c.toPort, Seq: 9, Ack: 1,
					Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}, 1)
			ack := build.TCP{SrcPort: c.sport, DstPort: c.dport, Seq: 1, Ack: 10,
				Flags: packet.FlagACK, Window: 1000}
			back := build.TCP{SrcPort: c.aport, DstPort: c.toPort, Seq: 10, Ack: 1,
				Flags: packet.FlagACK, Window: 1000}
			there, again := time.Hour, time.Hour
			for range 20000 {
				there = min(there, v.pass(c.at, c.from, c.to, ack, 1))
				again = min(again, v.pass(c.back, c.answers, answersTo, back, 1))
			}
			b.ReportMetric(float64(there.Nanoseconds()), "ns/there")
			b.ReportMetric(float64(again.Nanoseconds()), "ns/back")
		})
	}
}
