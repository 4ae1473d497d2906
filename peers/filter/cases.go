package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// benchPacket returns a packet of the peer's benchmark: 40 bytes of IPv4 or 60 of IPv6, 20 of them
// transport header and data.
func benchPacket(proto packet.Proto, six bool) ([]byte, error) {
	src, dst := netip.MustParseAddr("8.1.1.1"), netip.MustParseAddr("1.2.3.4")
	if six {
		src, dst = netip.MustParseAddr("::1"), netip.MustParseAddr("2001::1")
	}
	var ip build.Layer = build.IPv4{Src: src, Dst: dst}
	if six {
		ip = build.IPv6{Src: src, Dst: dst}
	}
	switch proto {
	case packet.ProtoTCP:
		return build.Packet(ip, build.TCP{SrcPort: 999, DstPort: 22, Flags: packet.FlagSYN})
	case packet.ProtoUDP:
		return build.Packet(ip, build.UDP{SrcPort: 999, DstPort: 22},
			build.Data(make([]byte, 12)))
	case packet.ProtoICMP:
		return build.Packet(ip, build.ICMP{Type: 0}, build.Data(make([]byte, 12)))
	}
	return build.Packet(ip, build.ICMPv6{Type: 0}, build.Data(make([]byte, 12)))
}

// benchCases are the peer's own: a protocol, a family, a direction.
var benchCases = []struct {
	name  string
	proto packet.Proto
	six   bool
	dir   firewall.Direction
}{
	{"icmp4", packet.ProtoICMP, false, firewall.In},
	{"tcp4_syn_in", packet.ProtoTCP, false, firewall.In},
	{"tcp4_syn_out", packet.ProtoTCP, false, firewall.Out},
	{"udp4_in", packet.ProtoUDP, false, firewall.In},
	{"udp4_out", packet.ProtoUDP, false, firewall.Out},
	{"icmp6", packet.ProtoICMPv6, true, firewall.In},
	{"tcp6_syn_in", packet.ProtoTCP, true, firewall.In},
	{"tcp6_syn_out", packet.ProtoTCP, true, firewall.Out},
	{"udp6_in", packet.ProtoUDP, true, firewall.In},
	{"udp6_out", packet.ProtoUDP, true, firewall.Out},
}

// tenCases is the peer's own benchmark: one packet over and over.
func tenCases(rounds int, slice time.Duration) error {
	fmt.Print("### Filter, the ten cases of the peer's benchmark, decode included\n\n" +
		"| case | weir ns, batches of 64 | weir ns, one by one, held | one by one | peer ns " +
		"| ratio | ratio, held | ratio, one by one | allocs weir / peer |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	single := math.Inf(1)
	mean, worstCase, err := cases(rounds, slice, 1,
		func(name string, r []result, peer result) float64 {
			ratio := peer.min / r[0].min
			single = min(single, peer.min/r[2].min)
			fmt.Printf("| %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f | %.0f / %.0f |\n",
				name, r[0].min, r[1].min, r[2].min, peer.min, ratio, peer.min/r[1].min,
				peer.min/r[2].min, max(r[0].allocs, r[1].allocs, r[2].allocs), peer.allocs)
			return ratio
		})
	if err != nil {
		return err
	}
	checkTarget(worstCase, 1)
	checkTarget(mean, 2)
	checkTarget(single, 1)
	fmt.Printf("\nGeometric mean %.2f (target 2), worst case %.2f (target 1), one by one %.2f "+
		"(target 1).\n",
		mean, worstCase, single)
	return nil
}

// mixedCases is the same with 64 flows in turn, so that no packet finds what the one before
// it has found.
func mixedCases(rounds int, slice time.Duration) error {
	fmt.Print("### The same with 64 flows in turn\n\n" +
		"| case | weir ns, batches of 64 | peer ns | ratio | target |\n" +
		"| --- | --- | --- | --- | --- |\n")
	mean, _, err := cases(rounds, slice, batch,
		func(name string, r []result, peer result) float64 {
			ratio, least := peer.min/r[0].min, 1.0
			if strings.HasPrefix(name, "tcp") {
				least = 0.8 // the peer looks nothing up
			}
			checkTarget(ratio, least)
			fmt.Printf("| %s | %.1f | %.1f | %.2f | %.1f |\n", name, r[0].min, peer.min, ratio,
				least)
			return ratio
		})
	if err != nil {
		return err
	}
	checkTarget(mean, 1.4)
	fmt.Printf("\nGeometric mean %.2f (target 1.4). The peer looks nothing up for a TCP segment,\n"+
		"ours finds the state of every packet.\n", mean)
	return nil
}

// cases measures the ten cases with so many flows: ours in batches, held, and one by one,
// and the peer's. It returns the geometric mean of what row returns, and the least.
func cases(rounds int, slice time.Duration, flows int,
	row func(name string, r []result, peer result) float64) (mean, least float64, err error) {
	sum, least := 0.0, math.Inf(1)
	for _, c := range benchCases {
		pkts := make([][]byte, batch)
		for i := range pkts {
			b, err := benchPacket(c.proto, c.six)
			if err != nil {
				return 0, 0, err
			}
			pkts[i] = b
			if c.proto == packet.ProtoTCP || c.proto == packet.ProtoUDP {
				binary.BigEndian.PutUint16(b[len(b)-20:], uint16(999+i%flows))
			}
		}
		e, err := engine(weirRules, 1<<16, 1)
		if err != nil {
			return 0, 0, err
		}
		p, err := newPeer(benchRules(), benchLocal...)
		if err != nil {
			return 0, 0, err
		}
		theirs := p.in
		if c.dir == firewall.Out {
			theirs = p.out
		}
		w := e.Worker(0)
		in := firewall.Input{Hook: firewall.Hook{Dir: c.dir, Recv: 1, Xmit: 1}, Now: time.Second}
		for _, pkt := range pkts {
			if v := w.Evaluate(&in, pkt); !v.Pass || !theirs(pkt) {
				return 0, 0, fmt.Errorf("%s: weir %+v, peer passes: %v", c.name, v, theirs(pkt))
			}
		}
		out := make([]firewall.Verdict, batch)
		single := func(n int) {
			for i := range n {
				out[0] = w.Evaluate(&in, pkts[i%batch])
			}
		}
		r := compare(rounds, slice, contender{"batches", func(n int) {
			for ; n > 0; n -= batch {
				w.EvaluateBatch(&in, pkts[:min(n, batch)], out)
			}
		}}, contender{"held", func(n int) {
			w.Hold()
			single(n)
			w.Release()
		}}, contender{"single", single}, contender{"peer", func(n int) {
			for i := range n {
				theirs(pkts[i%batch])
			}
		}})
		ratio := row(c.name, r[:3], r[3])
		sum += math.Log(ratio)
		least = min(least, ratio)
		if r[0].allocs != 0 || r[1].allocs != 0 || r[2].allocs != 0 {
			return 0, 0, fmt.Errorf("%s allocates", c.name)
		}
	}
	return math.Exp(sum / float64(len(benchCases))), least, nil
}
