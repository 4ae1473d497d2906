package main

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// benchPacket returns a packet of the peer's benchmark: 40 bytes of IPv4 or 60 of IPv6, 20 of them transport header and data.
func benchPacket(proto uint8, six bool) ([]byte, error) {
	src, dst := netip.MustParseAddr("8.1.1.1"), netip.MustParseAddr("1.2.3.4")
	if six {
		src, dst = netip.MustParseAddr("::1"), netip.MustParseAddr("2001::1")
	}
	var ip packet.Layer = packet.IPv4{Src: src, Dst: dst}
	if six {
		ip = packet.IPv6{Src: src, Dst: dst}
	}
	switch proto {
	case packet.ProtoTCP:
		return packet.Build(ip, packet.TCP{SrcPort: 999, DstPort: 22, Flags: packet.FlagSYN})
	case packet.ProtoUDP:
		return packet.Build(ip, packet.UDP{SrcPort: 999, DstPort: 22}, packet.Data(make([]byte, 12)))
	case packet.ProtoICMP:
		return packet.Build(ip, packet.ICMP{Type: 0}, packet.Data(make([]byte, 12)))
	}
	return packet.Build(ip, packet.ICMPv6{Type: 0}, packet.Data(make([]byte, 12)))
}

// tenCases is the peer's own benchmark.
func tenCases(rounds int, slice time.Duration) error {
	fmt.Print("### Filter, the ten cases of the peer's benchmark, decode included\n\n" +
		"| case | weir ns, batches of 64 | weir ns, one by one | peer ns | ratio | ratio one by one | allocs weir / peer |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	sum, worstCase, n := 0.0, math.Inf(1), 0
	for _, c := range []struct {
		name  string
		proto uint8
		six   bool
		dir   firewall.Direction
	}{
		{"icmp4", packet.ProtoICMP, false, firewall.In},
		{"tcp4_syn_in", packet.ProtoTCP, false, firewall.In}, {"tcp4_syn_out", packet.ProtoTCP, false, firewall.Out},
		{"udp4_in", packet.ProtoUDP, false, firewall.In}, {"udp4_out", packet.ProtoUDP, false, firewall.Out},
		{"icmp6", packet.ProtoICMPv6, true, firewall.In},
		{"tcp6_syn_in", packet.ProtoTCP, true, firewall.In}, {"tcp6_syn_out", packet.ProtoTCP, true, firewall.Out},
		{"udp6_in", packet.ProtoUDP, true, firewall.In}, {"udp6_out", packet.ProtoUDP, true, firewall.Out},
	} {
		pkt, err := benchPacket(c.proto, c.six)
		if err != nil {
			return err
		}
		e, err := engine(weirRules, 1<<16, 1)
		if err != nil {
			return err
		}
		p, err := newPeer(benchRules(), benchLocal...)
		if err != nil {
			return err
		}
		theirs := p.in
		if c.dir == firewall.Out {
			theirs = p.out
		}
		in := firewall.Input{Hook: firewall.Hook{Dir: c.dir, Recv: 1, Xmit: 1}, Now: time.Second}
		if v := e.Worker(0).Judge(&in, pkt); !v.Pass || !theirs(pkt) {
			return fmt.Errorf("%s: weir %+v, peer passes: %v", c.name, v, theirs(pkt))
		}
		batched, single := judge(e.Worker(0), c.dir, pkt)
		r := compare(rounds, slice, contender{"weir", batched}, contender{"single", single}, contender{"peer", func(n int) {
			for ; n > 0; n-- {
				theirs(pkt)
			}
		}})
		ratio := r[2].min / r[0].min
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %.2f | %.2f | %.0f / %.0f |\n", c.name, r[0].min, r[1].min, r[2].min, ratio, r[2].min/r[1].min, r[0].allocs, r[2].allocs)
		sum += math.Log(ratio)
		worstCase = min(worstCase, ratio)
		n++
		if r[0].allocs != 0 || r[1].allocs != 0 {
			return fmt.Errorf("%s allocates", c.name)
		}
	}
	mean := math.Exp(sum / float64(n))
	bar(worstCase, 1)
	bar(mean, 2)
	fmt.Printf("\nGeometric mean %.2f (bar 2), worst case %.2f (bar 1).\n", mean, worstCase)
	return nil
}
