package soft

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// benchRules evaluate flows in both directions.
const benchRules = `
add 1 check-state
add 2 allow ip from any to any out keep-state
add 3 allow icmp from any to any in icmptypes 0,3,11,12
add 10 allow tcp from 8.1.1.1,8.2.2.2 to 1.2.3.4 22 in setup keep-state
add 10 allow udp from 8.1.1.1,8.2.2.2 to 1.2.3.4 22 in keep-state
add 20 allow tcp from any to 5.6.7.8 27-28 in setup keep-state
`

// BenchmarkEvaluate evaluates one packet over and over.
func BenchmarkEvaluate(b *testing.B) {
	for _, c := range []struct{ name, pkt string }{
		{"udp", "45000028000000004011000008010101" + "01020304" +
			"03e700160014000000000000000000000000000000"},
		{"syn", "45000028000000004006000008010101" + "01020304" +
			"03e7001600000001000000005002faf000000000"},
		{"icmp", "45000028000000004001000008010101" + "01020304" +
			"0000000000000000000000000000000000000000"},
	} {
		pkt, err := hex.DecodeString(c.pkt)
		if err != nil {
			b.Fatal(err)
		}
		in := firewall.Input{Hook: firewall.Hook{Recv: 1}, Now: time.Second}
		b.Run(c.name+"/decode", func(b *testing.B) {
			var p packet.Packet
			for b.Loop() {
				p.Decode(pkt)
			}
		})
		w := load(b, Options{}, benchRules).Worker(0)
		b.Run(c.name+"/one", func(b *testing.B) {
			for b.Loop() {
				if v := w.Evaluate(&in, pkt); !v.Pass {
					b.Fatal(v)
				}
			}
		})
		b.Run(c.name+"/held", func(b *testing.B) {
			w.Hold()
			defer w.Release()
			for b.Loop() {
				if v := w.Evaluate(&in, pkt); !v.Pass {
					b.Fatal(v)
				}
			}
		})
		b.Run(c.name+"/batch", func(b *testing.B) {
			pkts, out := make([][]byte, 64), make([]firewall.Verdict, 64)
			for i := range pkts {
				pkts[i] = pkt
			}
			for range b.N/64 + 1 {
				w.EvaluateBatch(&in, pkts, out)
			}
		})
	}
}

// BenchmarkNewFlow evaluates packets each of which makes a state and ends an old one.
func BenchmarkNewFlow(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 16, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o := Options{Options: firewall.DefaultOptions()}
			o.MaxStates, o.MaxHalfOpen = 2*size, size
			w := load(b, o, benchRules).Worker(0)
			pkts, out := make([][]byte, 64), make([]firewall.Verdict, 64)
			for i := range pkts {
				pkts[i], _ = hex.DecodeString("45000028000000004011000008010101" + "01020304" +
					"03e700160014000000000000000000000000000000")
			}
			in := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out}, Now: time.Second}
			k := uint32(0)
			run := func(n int) {
				for ; n > 0; n -= 64 {
					for _, p := range pkts {
						k++
						binary.BigEndian.PutUint32(p[16:], k*2654435761)
						binary.BigEndian.PutUint16(p[22:], uint16(k>>16))
					}
					in.Now += 20 * time.Microsecond
					w.EvaluateBatch(&in, pkts, out)
				}
			}
			run(2 * size)
			best := math.Inf(1)
			b.ResetTimer()
			for range b.N/640 + 1 {
				start := time.Now()
				run(640)
				best = min(best, float64(time.Since(start).Nanoseconds())/640)
			}
			b.ReportMetric(best, "best-ns/op")
		})
	}
}
