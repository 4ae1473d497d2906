package packet

import "testing"

func TestDecodeFrame(t *testing.T) {
	ip4 := build(t, IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")}, UDP{SrcPort: 1, DstPort: 2})
	ip6 := build(t, IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")},
		UDP{SrcPort: 1, DstPort: 2})
	v4 := IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")}
	udp := UDP{SrcPort: 1, DstPort: 2}
	sll := func(typ uint16, kind byte) []byte {
		return append([]byte{0, kind, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, byte(typ >> 8),
			byte(typ)}, ip4...)
	}
	sll2 := func(typ uint16, kind byte) []byte {
		return append([]byte{byte(typ >> 8), byte(typ), 0, 0, 0, 0, 0, 3, 0, 1, kind, 6, 1, 2, 3, 4,
			5, 6, 0, 0}, ip4...)
	}
	for name, tc := range map[string]struct {
		link   Link
		b      []byte
		frame  Frame
		reason Reason
		ip     bool
	}{
		"ethernet": {LinkEthernet, build(t, Ethernet{}, v4, udp),
			Frame{EtherType: EtherIPv4, L3: 14}, 0, true},
		"ethernet padded": {LinkEthernet,
			build(t, Ethernet{Type: EtherIPv4}, Data(ip4), Data("padding")),
			Frame{EtherType: EtherIPv4, L3: 14}, 0, true},
		"one tag": {LinkEthernet, build(t, Ethernet{}, VLAN{TCI: 7}, v4, udp),
			Frame{EtherType: EtherIPv4, L3: 18, NumTags: 1, Tags: [2]uint16{7}}, 0, true},
		"two tags": {LinkEthernet,
			build(t, Ethernet{}, VLAN{TPID: EtherQinQ, TCI: 7}, VLAN{TCI: 8}, v4, udp),
			Frame{EtherType: EtherIPv4, L3: 22, NumTags: 2, Tags: [2]uint16{7, 8}}, 0, true},
		"three tags": {LinkEthernet,
			build(t, Ethernet{}, VLAN{TPID: EtherQinQ, TCI: 7}, VLAN{TCI: 8}, VLAN{}, v4, udp),
			Frame{EtherType: EtherVLAN, L3: 22, NumTags: 2, Tags: [2]uint16{7, 8}}, ReasonVLAN,
			false},
		"cut tag": {LinkEthernet, build(t, Ethernet{Type: EtherVLAN}, Data("abc")),
			Frame{EtherType: EtherVLAN, L3: 14}, ReasonLink, false},
		"ipv6": {LinkEthernet, build(t, Ethernet{Type: EtherIPv6}, Data(ip6)),
			Frame{EtherType: EtherIPv6, L3: 14}, 0, true},
		"arp": {LinkEthernet, build(t, Ethernet{Type: EtherARP}, make(Data, 28)),
			Frame{EtherType: EtherARP, L3: 14}, 0, false},
		"spanning tree": {LinkEthernet, build(t, Ethernet{Type: 38}, make(Data, 38)),
			Frame{EtherType: 38, L3: 14}, 0, false},
		"wrong version": {LinkEthernet, build(t, Ethernet{Type: EtherIPv6}, Data(ip4)),
			Frame{EtherType: EtherIPv6, L3: 14}, ReasonVersion, false},
		"short ethernet": {LinkEthernet, make([]byte, 13), Frame{}, ReasonLink, false},
		"no ip header": {LinkEthernet, build(t, Ethernet{Type: EtherIPv6}, Data(ip4[:19])),
			Frame{EtherType: EtherIPv6, L3: 14}, ReasonShort, false},
		"raw v4":      {LinkRaw, ip4, Frame{EtherType: EtherIPv4}, 0, true},
		"raw v6":      {LinkRaw, ip6, Frame{EtherType: EtherIPv6}, 0, true},
		"raw nothing": {LinkRaw, nil, Frame{}, ReasonLink, false},
		"raw nonsense": {LinkRaw, make([]byte, 40), Frame{EtherType: EtherIPv4}, ReasonVersion,
			false},
		"cooked in": {LinkSLL, sll(EtherIPv4, 0), Frame{EtherType: EtherIPv4, L3: 16}, 0,
			true},
		"cooked out": {LinkSLL, sll(EtherIPv4, 4),
			Frame{EtherType: EtherIPv4, L3: 16, Outgoing: true}, 0, true},
		"cooked short": {LinkSLL, make([]byte, 15), Frame{}, ReasonLink, false},
		"cooked2 out": {LinkSLL2, sll2(EtherIPv4, 4),
			Frame{EtherType: EtherIPv4, L3: 20, Outgoing: true}, 0, true},
		"cooked2 arp": {LinkSLL2, sll2(EtherARP, 0), Frame{EtherType: EtherARP, L3: 20}, 0,
			false},
		"cooked2 short": {LinkSLL2, make([]byte, 19), Frame{}, ReasonLink, false},
		"null little": {LinkNull, append([]byte{2, 0, 0, 0}, ip4...),
			Frame{EtherType: EtherIPv4, L3: 4}, 0, true},
		"null big": {LinkNull, append([]byte{0, 0, 0, 2}, ip4...),
			Frame{EtherType: EtherIPv4, L3: 4}, 0, true},
		"null freebsd v6": {LinkNull, append([]byte{28, 0, 0, 0}, ip6...),
			Frame{EtherType: EtherIPv6, L3: 4}, 0, true},
		"loop openbsd v6": {LinkLoop, append([]byte{0, 0, 0, 24}, ip6...),
			Frame{EtherType: EtherIPv6, L3: 4}, 0, true},
		"null other family": {LinkNull, append([]byte{7, 0, 0, 0}, ip6...), Frame{L3: 4}, 0, false},
		"null short":        {LinkNull, []byte{2, 0, 0}, Frame{}, ReasonLink, false},
		"unknown link":      {99, ip4, Frame{}, ReasonLink, false},
	} {
		p := Packet{SrcIP: [16]byte{9}}
		f := p.DecodeFrame(tc.link, tc.b)
		if f != tc.frame || p.Reason != tc.reason {
			t.Errorf("%s: %+v %v, want %+v %v", name, f, p.Reason, tc.frame, tc.reason)
		}
		if !tc.ip && p != (Packet{Reason: tc.reason}) {
			t.Errorf("%s: not empty: %+v", name, p)
		}
		if tc.ip && p.Ports != 1<<16|2 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
