package enginetest

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// CompletePacket is a packet with headers of some kind, every one of which is complete.
type CompletePacket struct {
	Name  string
	Bytes []byte
}

// CompletePackets returns packets that have every header that is decoded, alone and behind each
// other.
func CompletePackets() []CompletePacket {
	v4 := craft{src: netip.MustParseAddr("10.0.0.1"), dst: netip.MustParseAddr("10.0.0.2"),
		ttl: 64, id: 77}
	v6 := craft{src: netip.MustParseAddr("2001:db8::1"), dst: netip.MustParseAddr("2001:db8::2"),
		ttl: 64, id: 77}
	options := append([]byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		148, 4, 0, 0}, 1, 1, 0)
	options = append(options, make([]byte, 40-len(options))...)
	tcp := tcpBody(4000, 80, 1000, 0, 2, 500, 7, 10)
	long := tcpBody(4001, 80, 1000, 0, 2, 500, 0xff, 0)
	// 40 bytes of options: MSS, SACK permitted, time stamps, window scale, the rest is padding
	long[12] = 15 << 4
	long = append(long, 2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7)
	long = append(long, make([]byte, 60-len(long)+4)...)
	bodies := []struct {
		name  string
		proto packet.Proto
		body  []byte
	}{
		{"TCP", packet.ProtoTCP, tcp}, {"TCP with options", packet.ProtoTCP, long},
		{"UDP", packet.ProtoUDP, udpBody(4000, 53, 12)},
		{"UDP-Lite", packet.ProtoUDPLite, udpBody(4000, 53, 12)},
		{"SCTP", packet.ProtoSCTP, sctpBody(4000, 80, 0, 1, 0)}, {"GRE", 47, make([]byte, 16)},
	}
	var all []CompletePacket
	add := func(name string, c craft, proto packet.Proto, body []byte) {
		c.proto, c.body = proto, body
		all = append(all, CompletePacket{name, c.bytes()})
	}
	extensions := func(first uint8, ext []byte) craft {
		c := v6
		c.first, c.options = first, ext
		return c
	}
	hop := []byte{0, 0, 5, 2, 0, 0, 1, 0}
	for _, b := range bodies {
		add("IPv4 "+b.name, v4, b.proto, b.body)
		with := v4
		with.options = options
		add("IPv4 with options, "+b.name, with, b.proto, b.body)
		for what, frag := range map[string]uint16{"first": 0x2000, "later": 8,
			"last": 0x2000 | 16} {
			cut := v4
			cut.frag = frag
			add("IPv4 "+what+" fragment, "+b.name, cut, b.proto, b.body)
		}
		add("IPv6 "+b.name, v6, b.proto, b.body)
		add("IPv6 hop-by-hop, "+b.name, extensions(packet.ProtoHopByHop, hop), b.proto, b.body)
		add("IPv6 routing, "+b.name,
			extensions(packet.ProtoRouting,
				append([]byte{0, 2, 4, 0}, make([]byte, 20)...)), b.proto, b.body)
		add("IPv6 destination, "+b.name,
			extensions(packet.ProtoDestination,
				append([]byte{0, 1, 1, 12}, make([]byte, 12)...)), b.proto, b.body)
		add("IPv6 AH, "+b.name, extensions(packet.ProtoAH,
			append([]byte{0, 4}, make([]byte, 22)...)), b.proto, b.body)
		for what, frag := range map[string]uint16{"first": 1, "later": 8,
			"later, not last": 8 | 1} {
			cut := extensions(packet.ProtoHopByHop, hop)
			cut.isFrag, cut.frag = true, frag
			add("IPv6 "+what+" fragment, "+b.name, cut, b.proto, b.body)
		}
		// What an error quotes went the other way.
		quoted, quoted6 := with, extensions(packet.ProtoHopByHop, hop)
		quoted.src, quoted.dst, quoted.proto, quoted.body = v4.dst, v4.src, b.proto, b.body
		quoted6.src, quoted6.dst, quoted6.proto, quoted6.body = v6.dst, v6.src, b.proto, b.body
		add("ICMP about "+b.name, v4, packet.ProtoICMP, icmpBody(3, 1, 0, quoted.bytes()))
		add("ICMPv6 about "+b.name, v6, packet.ProtoICMPv6, icmpBody(1, 3, 0, quoted6.bytes()))
	}
	echo := v4
	echo.src, echo.dst, echo.proto, echo.body = v4.dst, v4.src, packet.ProtoICMP,
		icmpBody(8, 0, 9, make([]byte, 8))
	echo6 := v6
	echo6.src, echo6.dst, echo6.proto, echo6.body = v6.dst, v6.src, packet.ProtoICMPv6,
		icmpBody(128, 0, 9, make([]byte, 8))
	add("ICMP echo", v4, packet.ProtoICMP, echo.body)
	add("ICMPv6 echo", v6, packet.ProtoICMPv6, echo6.body)
	add("ICMP about an echo", v4, packet.ProtoICMP, icmpBody(11, 0, 0, echo.bytes()))
	add("ICMPv6 about an echo", v6, packet.ProtoICMPv6, icmpBody(3, 0, 0, echo6.bytes()))
	return all
}

// Truncations returns a packet cut off behind each of its bytes, as it is and with the length in
// its IP header put right. It also returns the packet with every length of the headers that say
// their own in four bits.
func Truncations(b []byte) [][]byte {
	var all [][]byte
	for n := range len(b) + 1 {
		all = append(all, append([]byte(nil), b[:n]...))
		if right := lengthen(b[:n]); right != nil {
			all = append(all, right)
		}
	}
	at := 40
	if b[0]>>4 == 4 {
		at = int(b[0]&15) * 4
		for ihl := range byte(16) {
			c := append([]byte(nil), b...)
			c[0] = 0x40 | ihl
			all = append(all, c)
		}
	}
	for offset := range byte(16) { // TCP's; in other headers it is as good as any byte
		if at+12 < len(b) {
			c := append([]byte(nil), b...)
			c[at+12] = offset << 4
			all = append(all, c)
		}
	}
	return all
}

// lengthen writes the length of an IP packet into its header, if there is space for that.
func lengthen(b []byte) []byte {
	c := append([]byte(nil), b...)
	switch {
	case len(c) >= 20 && c[0]>>4 == 4:
		binary.BigEndian.PutUint16(c[2:], uint16(len(c)))
	case len(c) >= 40 && c[0]>>4 == 6:
		binary.BigEndian.PutUint16(c[4:], uint16(len(c)-40))
	default:
		return nil
	}
	return c
}

// truncatedRules look at every header.
var truncatedRules = []string{
	"add 1 check-state", "add 2 count ip from any to any ipoptions rr,ts,lsrr,ssrr",
	"add 3 count tcp from any to any setup", "add 4 count ip from any to any frag",
	"add 5 count tcp from any to any tcpflags syn,!ack",
	"add 6 count icmp from any to any icmptypes 3,8,11",
	"add 7 count ip6 from any to any icmp6types 1,3,128",
	"add 8 count ip from any to any iplen 0-60", "add 9 count tcp from any to any established",
	"add 10 count ip from any to any iptos lowdelay",
	"add 11 allow tcp from any to any 80 keep-state",
	"add 12 allow udp from any to any 53 keep-state :dns", "add 13 reset tcp from any to any",
	"add 14 allow 132 from any to any limit src-addr 10",
	"add 15 unreach host ip4 from any to any proto udp",
	"add 16 allow ip from any to any keep-state",
}

// RunTruncated compares an engine with the model on every truncation of every kind of header.
func RunTruncated(t *testing.T, options firewall.Options,
	newSubject func(firewall.Options) (Subject, error)) {
	t.Helper()
	total := 0
	for _, strict := range []bool{true, false} {
		for _, w := range CompletePackets() {
			c := &Case{Rules: [][]string{truncatedRules}, Default: op.ActionDeny, Strict: strict}
			now := time.Minute
			for _, b := range Truncations(w.Bytes) {
				now += 10 * time.Millisecond
				c.Steps = append(c.Steps, Step{Kind: StepPacket, Packet: b,
					Input: firewall.Input{Now: now, Hook: firewall.Hook{Recv: 2}}})
			}
			c.Steps = append(c.Steps, Step{Kind: StepSweep, Input: firewall.Input{Now: now}})
			total += len(c.Steps)
			d, err := c.Run(options, newSubject)
			if err != nil {
				t.Fatalf("%s: %v", w.Name, err)
			}
			if d != nil {
				t.Fatalf("%s: %v", w.Name, d.Shrink(options, newSubject, 20*time.Second))
			}
		}
	}
	t.Logf("%d packets", total)
}
