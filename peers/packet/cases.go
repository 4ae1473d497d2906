package main

import (
	"bytes"
	"net/netip"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// testCase is one packet that every decoder reads.
type testCase struct {
	name string
	b    []byte
}

// cases are the eight packets of Tailscale's decode benchmark (fast), and packets that only package
// packet decodes completely (slow).
func cases() (fast, slow []testCase, err error) {
	addr := netip.MustParseAddr
	v4 := build.IPv4{Src: addr("1.2.3.4"), Dst: addr("5.6.7.8"), ID: 0xdead}
	v6 := build.IPv6{Src: addr("2001:559:bc13:5400:1749:4628:3934:e1b"),
		Dst: addr("2607:f8b0:400a:809::200e")}
	text := build.Data("request_payload")
	tcp4 := build.TCP{SrcPort: 123, DstPort: 567, Seq: 0x1234,
		Flags: packet.FlagSYN | packet.FlagACK}
	// MSS 1440, SACK, timestamps, scale 7
	syn := []byte{2, 4, 5, 160, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7}
	tcp6 := build.TCP{SrcPort: 42080, DstPort: 80, Seq: 1, Flags: packet.FlagSYN, Window: 64800,
		Options: syn}
	host4 := build.IPv4{Src: addr("192.168.1.82"), Dst: addr("224.0.0.251"), TTL: 1,
		Options: []byte{148, 4, 0, 0}}
	var mustBuild = func(layers ...build.Layer) []byte {
		b, e := build.Packet(layers...)
		if e != nil {
			err = e
		}
		return b
	}
	// The ICMP header of this packet has 4 bytes; the text is where the identifier would be.
	icmp4 := append(build.Data{8, 0, 0, 0}, text...)
	v4icmp := v4
	v4icmp.Proto = packet.ProtoICMP
	fast = []testCase{
		{"tcp4", mustBuild(v4, tcp4, text)},
		{"tcp6", mustBuild(v6, tcp6)},
		{"udp4", mustBuild(v4, build.UDP{SrcPort: 123, DstPort: 567}, text)},
		{"udp6", mustBuild(v6, build.UDP{SrcPort: 54276, DstPort: 443},
			build.Data(bytes.Repeat([]byte("x"), 33)))},
		{"icmp4", mustBuild(v4icmp, icmp4)},
		{"icmp6", mustBuild(build.IPv6{Src: addr("fe80::fb57:1dea:9c39:8fb7"), Dst: addr("ff02::2"),
			HopLimit: 255}, build.ICMPv6{Type: 133})},
		{"igmp", mustBuild(host4, build.IGMP{Type: 0x16, Group: addr("224.0.0.251")})},
		{"unknown", []byte("Ghello there")},
	}
	slow = []testCase{
		{"udp4 with options", mustBuild(build.IPv4{Src: v4.Src, Dst: v4.Dst,
			Options: []byte{7, 7, 4, 0, 0, 0, 0}}, build.UDP{SrcPort: 1, DstPort: 2}, text)},
		{"later fragment", mustBuild(build.IPv4{Src: v4.Src, Dst: v4.Dst, Proto: packet.ProtoUDP,
			FragOff: 1480}, text)},
		{"tcp6 behind hop-by-hop", mustBuild(v6, build.HopByHop{Options: build.RouterAlert()},
			tcp6)},
		{"eight extension headers", mustBuild(v6, build.HopByHop{}, build.Destination{},
			build.Routing{Type: 4}, build.Destination{},
			build.Destination{}, build.Destination{}, build.Destination{},
			build.Fragment{ID: 1}, tcp6)},
		{"bad length", func() []byte { b := mustBuild(v4, tcp4, text); b[3]++; return b }()},
	}
	return fast, slow, err
}
