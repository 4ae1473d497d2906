package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"tailscale.com/types/ipproto"
	"tailscale.com/wgengine/filter"
)

// manyRules evaluates SYNs that only the last of n rules matches. Every packet of a batch has
// another source port, so that nothing but the rules decides.
func manyRules(rounds int, slice time.Duration) error {
	fmt.Print("### TCP SYN against n rules of one source each, the last one matches\n\n" +
		"| rules | weir ns | peer ns | ratio | weir, times 1 rule | peer, times 1 rule |\n" +
		"| --- | --- | --- | --- | --- | --- |\n")
	var first []result
	var growth float64
	for _, n := range []int{1, 10, 100, 1000, 10000} {
		var text strings.Builder
		var matches []filter.Match
		for i := range n {
			src := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
			fmt.Fprintf(&text, "add %d allow tcp from %s to 1.2.3.4 22 in setup\n", 1+i, src)
			matches = append(matches, match([]ipproto.Proto{ipproto.TCP}, []string{src},
				dst{"1.2.3.4", 22, 22}))
		}
		e, err := engine(text.String(), 1<<10, 1)
		if err != nil {
			return err
		}
		p, err := newPeer(matches, benchLocal...)
		if err != nil {
			return err
		}
		pkts := make([][]byte, batch)
		for i := range pkts {
			if pkts[i], err = benchPacket(packet.ProtoTCP, false); err != nil {
				return err
			}
			last := n - 1
			copy(pkts[i][12:], []byte{10, byte(last >> 16), byte(last >> 8), byte(last)})
			binary.BigEndian.PutUint16(pkts[i][20:], uint16(1000+i))
		}
		in := firewall.Input{Hook: firewall.Hook{Recv: 1}, Now: time.Second}
		out := make([]firewall.Verdict, batch)
		w := e.Worker(0)
		w.EvaluateBatch(&in, pkts, out)
		if !out[0].Pass || int(out[0].Rule) != n || !p.in(pkts[0]) {
			return fmt.Errorf("%d rules: weir %+v, peer passes: %v", n, out[0], p.in(pkts[0]))
		}
		r := compare(rounds, slice, contender{"weir", func(n int) {
			for ; n > 0; n -= batch {
				w.EvaluateBatch(&in, pkts[:min(n, batch)], out)
			}
		}}, contender{"peer", func(n int) {
			for i := range n {
				p.in(pkts[i%batch])
			}
		}})
		if first == nil {
			first = r
		}
		growth = r[0].min / first[0].min
		fmt.Printf("| %d | %.1f | %.1f | %.2f | %.2f | %.2f |\n", n, r[0].min, r[1].min,
			r[1].min/r[0].min, growth, r[1].min/first[1].min)
	}
	checkTarget(10/growth, 1)
	fmt.Printf("\nFrom 1 to 10,000 rules the cost grows %.2f times (target: less than 10).\n",
		growth)
	return nil
}
