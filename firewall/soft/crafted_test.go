package soft

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
)

// BenchmarkCrafted evaluates packets of flows that an attacker has picked to meet in few sets of
// the table (see crafted), and of random ones, in turn. First every one is new, then every one is
// known.
func BenchmarkCrafted(b *testing.B) {
	const n = 8192
	rnd := rand.New(rand.NewPCG(3, 4))
	random := make([]flow.Key, n)
	for i := range random {
		random[i] = numbered(rnd.Uint64() >> 24)
	}
	sets := [2][]flow.Key{crafted(n, false), random}
	var fresh, known [2]float64
	for i := range sets {
		fresh[i], known[i] = math.Inf(1), math.Inf(1)
	}
	verdicts := make([]firewall.Verdict, 64)
	for range max(20, b.N) {
		for i, keys := range sets {
			e := load(b, Options{},
				"add 1 check-state\nadd 2 allow udp from any to any keep-state\n")
			pkts := packetsOf(keys)
			input := firewall.Input{Now: time.Second}
			for _, best := range []*float64{&fresh[i], &known[i]} {
				start := time.Now()
				for at := 0; at < n; at += 64 {
					e.Worker(0).EvaluateBatch(&input, pkts[at:at+64], verdicts)
				}
				*best = min(*best, float64(time.Since(start).Nanoseconds())/n)
			}
			if used := live(e); used < n*99/100 {
				b.Fatalf("%d states of %d", used, n)
			}
		}
	}
	b.ReportMetric(fresh[0], "crafted-new-ns")
	b.ReportMetric(fresh[1], "random-new-ns")
	b.ReportMetric(known[0], "crafted-known-ns")
	b.ReportMetric(known[1], "random-known-ns")
	b.ReportMetric(0, "ns/op")
}

// packetsOf returns a UDP packet from the low to the high end of each key.
func packetsOf(keys []flow.Key) [][]byte {
	pkts := make([][]byte, len(keys))
	for i, k := range keys {
		pkts[i], _ = hex.DecodeString("4500002800000000401100000801010101020304" +
			"03e700160014000000000000000000000000000000000000")
		binary.BigEndian.PutUint32(pkts[i][12:], uint32(k.LowLo))
		binary.BigEndian.PutUint32(pkts[i][16:], uint32(k.HighLo))
		binary.BigEndian.PutUint32(pkts[i][20:], k.Ports)
	}
	return pkts
}
