package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// flows makes packets of UDP flows by number, in a handful of buffers.
type flows struct {
	rnd  *rand.PCG
	n    uint64
	pkts [][]byte
	out  bool // from us to the others
}

func newFlows(n int, out bool) (*flows, error) {
	f := &flows{rnd: rand.NewPCG(1, 2), n: uint64(n), out: out}
	for range batch {
		b, err := benchPacket(packet.ProtoUDP, false)
		if err != nil {
			return nil, err
		}
		f.pkts = append(f.pkts, b)
	}
	return f, nil
}

// set makes packet i one of flow k: a far end 9.x.y.z:53 that k names, and 8.1.1.1:999.
func (f *flows) set(i int, k uint64) {
	b := f.pkts[i]
	far, near := b[16:20], b[12:16]
	fport, nport := b[22:24], b[20:22]
	if !f.out {
		far, near, fport, nport = near, far, nport, fport
	}
	binary.BigEndian.PutUint32(far, 9<<24|uint32(k))
	binary.BigEndian.PutUint32(near, 0x08010101)
	binary.BigEndian.PutUint16(fport, 53)
	binary.BigEndian.PutUint16(nport, 999)
}

// random fills n packets with flows drawn at random.
func (f *flows) random(n int) [][]byte {
	for i := range n {
		f.set(i, f.rnd.Uint64()>>32*f.n>>32)
	}
	return f.pkts[:n]
}

// manyStates evaluates packets of n live flows, drawn at random.
func manyStates(rounds int, slice time.Duration) error {
	fmt.Print("### Outgoing UDP packets of n live flows, drawn at random\n\n" +
		"| live | weir ns | peer ns | ratio | weir, times 512 | remembered by weir | by the peer " +
		"| allocs weir / peer | bytes per state |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	var first float64
	for _, n := range []int{512, 10_000, 100_000, 1_000_000} {
		e, err := engine(weirRules, n, 1)
		if err != nil {
			return err
		}
		p, err := newPeer(benchRules(), benchLocal...)
		if err != nil {
			return err
		}
		out, err := newFlows(n, true)
		if err != nil {
			return err
		}
		in, err := newFlows(n, false)
		if err != nil {
			return err
		}
		w := e.Worker(0)
		goes := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1}, Now: time.Second}
		comes := firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1}, Now: time.Second}
		// Every flow begins, is answered, and shows with another packet that it got the answer:
		// until then its state is half-open.
		for k := range uint64(n) {
			out.set(0, k)
			in.set(0, k)
			w.Evaluate(&goes, out.pkts[0])
			w.Evaluate(&comes, in.pkts[0])
			w.Evaluate(&goes, out.pkts[0])
			p.out(out.pkts[0])
		}
		ours, theirs := 0, 0
		for k := range uint64(n) {
			in.set(0, k)
			if w.Evaluate(&comes, in.pkts[0]).State == firewall.StateHit {
				ours++
			}
			if p.in(in.pkts[0]) {
				theirs++
			}
		}
		verdicts := make([]firewall.Verdict, batch)
		r := compare(rounds, slice, contender{"weir", func(n int) {
			for ; n > 0; n -= batch {
				k := min(n, batch)
				w.EvaluateBatch(&goes, out.random(k), verdicts)
			}
		}}, contender{"peer", func(n int) {
			for ; n > 0; n -= batch {
				for _, pkt := range out.random(min(n, batch)) {
					p.out(pkt)
				}
			}
		}})
		if first == 0 {
			first = r[0].min
		}
		size := float64(e.Memory()) / float64(n)
		fmt.Printf("| %d | %.1f | %.1f | %.2f | %.2f | %d | %d | %.0f / %.0f | %.0f |\n", n,
			r[0].min, r[1].min, r[1].min/r[0].min, r[0].min/first,
			ours, theirs, r[0].allocs, r[1].allocs, size)
		checkTarget(r[1].min/r[0].min, 1)
		if ours != n {
			return fmt.Errorf("%d of %d states are remembered", ours, n)
		}
		if n == 1_000_000 {
			checkTarget(4*first/r[0].min, 1)
			checkTarget(160/size, 1)
		}
	}
	fmt.Print("\nBars: faster than the peer at every size, at a million at most 4 times the cost " +
		"at 512,\nat most 160 bytes per state.\n")
	return nil
}
