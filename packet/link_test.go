package packet_test

import (
	"maps"
	"testing"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// frameCase is a frame of a kind of link, and what DecodeFrame makes of it.
type frameCase struct {
	link   packet.Link
	b      []byte
	frame  packet.Frame
	reason packet.Reason
	ip     bool
}

// ethernetFrames are frames with and without tags.
func ethernetFrames(t *testing.T) map[string]frameCase {
	t.Helper()
	ip4 := mustBuild(t, build.IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	ip6 := mustBuild(t, build.IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	v4 := build.IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")}
	udp := build.UDP{SrcPort: 1, DstPort: 2}
	return map[string]frameCase{
		"ethernet": {packet.LinkEthernet, mustBuild(t, build.Ethernet{}, v4, udp),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 14}, 0, true},
		"ethernet padded": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: packet.EtherIPv4}, build.Data(ip4),
				build.Data("padding")),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 14}, 0, true},
		"one tag": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{}, build.VLAN{TCI: 7}, v4, udp),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 18, NumTags: 1, Tags: [2]uint16{7}}, 0,
			true},
		"two tags": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{}, build.VLAN{TPID: packet.EtherQinQ, TCI: 7},
				build.VLAN{TCI: 8}, v4, udp),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 22, NumTags: 2, Tags: [2]uint16{7, 8}}, 0,
			true},
		"three tags": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{}, build.VLAN{TPID: packet.EtherQinQ, TCI: 7},
				build.VLAN{TCI: 8}, build.VLAN{}, v4, udp),
			packet.Frame{EtherType: packet.EtherVLAN, L3: 22, NumTags: 2, Tags: [2]uint16{7, 8}},
			packet.ReasonVLAN,
			false},
		"cut tag": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: packet.EtherVLAN}, build.Data("abc")),
			packet.Frame{EtherType: packet.EtherVLAN, L3: 14}, packet.ReasonLink, false},
		"ipv6": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: packet.EtherIPv6}, build.Data(ip6)),
			packet.Frame{EtherType: packet.EtherIPv6, L3: 14}, 0, true},
		"arp": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: packet.EtherARP}, make(build.Data, 28)),
			packet.Frame{EtherType: packet.EtherARP, L3: 14}, 0, false},
		"spanning tree": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: 38}, make(build.Data, 38)),
			packet.Frame{EtherType: 38, L3: 14}, 0, false},
		"wrong version": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: packet.EtherIPv6}, build.Data(ip4)),
			packet.Frame{EtherType: packet.EtherIPv6, L3: 14}, packet.ReasonVersion, false},
		"short ethernet": {packet.LinkEthernet, make([]byte, 13), packet.Frame{}, packet.ReasonLink,
			false},
		"no ip header": {packet.LinkEthernet,
			mustBuild(t, build.Ethernet{Type: packet.EtherIPv6}, build.Data(ip4[:19])),
			packet.Frame{EtherType: packet.EtherIPv6, L3: 14}, packet.ReasonShort, false},
	}
}

// otherFrames are frames of links without Ethernet headers.
func otherFrames(t *testing.T) map[string]frameCase {
	t.Helper()
	ip4 := mustBuild(t, build.IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	ip6 := mustBuild(t, build.IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	sll := func(typ uint16, kind byte) []byte {
		return append([]byte{0, kind, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, byte(typ >> 8),
			byte(typ)}, ip4...)
	}
	sll2 := func(typ uint16, kind byte) []byte {
		return append([]byte{byte(typ >> 8), byte(typ), 0, 0, 0, 0, 0, 3, 0, 1, kind, 6, 1, 2, 3, 4,
			5, 6, 0, 0}, ip4...)
	}
	return map[string]frameCase{
		"raw v4":      {packet.LinkRaw, ip4, packet.Frame{EtherType: packet.EtherIPv4}, 0, true},
		"raw v6":      {packet.LinkRaw, ip6, packet.Frame{EtherType: packet.EtherIPv6}, 0, true},
		"raw nothing": {packet.LinkRaw, nil, packet.Frame{}, packet.ReasonLink, false},
		"raw nonsense": {packet.LinkRaw, make([]byte, 40),
			packet.Frame{EtherType: packet.EtherIPv4}, packet.ReasonVersion,
			false},
		"cooked in": {packet.LinkSLL, sll(packet.EtherIPv4, 0),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 16}, 0,
			true},
		"cooked out": {packet.LinkSLL, sll(packet.EtherIPv4, 4),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 16, Outgoing: true}, 0, true},
		"cooked short": {packet.LinkSLL, make([]byte, 15), packet.Frame{}, packet.ReasonLink,
			false},
		"cooked2 out": {packet.LinkSLL2, sll2(packet.EtherIPv4, 4),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 20, Outgoing: true}, 0, true},
		"cooked2 arp": {packet.LinkSLL2, sll2(packet.EtherARP, 0),
			packet.Frame{EtherType: packet.EtherARP, L3: 20}, 0,
			false},
		"cooked2 short": {packet.LinkSLL2, make([]byte, 19), packet.Frame{}, packet.ReasonLink,
			false},
		"null little": {packet.LinkNull, append([]byte{2, 0, 0, 0}, ip4...),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 4}, 0, true},
		"null big": {packet.LinkNull, append([]byte{0, 0, 0, 2}, ip4...),
			packet.Frame{EtherType: packet.EtherIPv4, L3: 4}, 0, true},
		"null freebsd v6": {packet.LinkNull, append([]byte{28, 0, 0, 0}, ip6...),
			packet.Frame{EtherType: packet.EtherIPv6, L3: 4}, 0, true},
		"loop openbsd v6": {packet.LinkLoop, append([]byte{0, 0, 0, 24}, ip6...),
			packet.Frame{EtherType: packet.EtherIPv6, L3: 4}, 0, true},
		"null other family": {packet.LinkNull, append([]byte{7, 0, 0, 0}, ip6...),
			packet.Frame{L3: 4}, 0, false},
		"null short": {packet.LinkNull, []byte{2, 0, 0}, packet.Frame{}, packet.ReasonLink,
			false},
		"unknown link": {99, ip4, packet.Frame{}, packet.ReasonLink, false},
	}
}

func TestDecodeFrame(t *testing.T) {
	cases := ethernetFrames(t)
	maps.Copy(cases, otherFrames(t))
	for name, tc := range cases {
		p := packet.Packet{SrcIP: [16]byte{9}}
		f := p.DecodeFrame(tc.link, tc.b)
		if f != tc.frame || p.Reason != tc.reason {
			t.Errorf("%s: %+v %v, want %+v %v", name, f, p.Reason, tc.frame, tc.reason)
		}
		if !tc.ip && p != (packet.Packet{Reason: tc.reason}) {
			t.Errorf("%s: not empty: %+v", name, p)
		}
		if tc.ip && p.Ports != 1<<16|2 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
