package build_test

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

func ExamplePacket() {
	b, err := build.Packet(
		build.IPv6{Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("ff02::16"),
			HopLimit: 1},
		build.HopByHop{Options: build.RouterAlert()},
		build.ICMPv6{Type: 143},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	var p packet.Packet
	p.Decode(b)
	fmt.Println(len(b), p.Essential())
	// Output: 56 true
}

func ExampleParseText() {
	p, b, err := build.ParseText("tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags S")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(b), p.TCPFlags == packet.FlagSYN)

	reply, ok := build.Reset(&p)
	p.Decode(reply)
	fmt.Println(ok, p.String())
	// Output:
	// 40 true
	// true tcp 10.0.1.9:80 -> 10.0.0.5:4000 flags RA
}
