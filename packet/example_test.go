package packet_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

func Example() {
	b, err := build.Packet(
		build.IPv4{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2")},
		build.UDP{SrcPort: 4000, DstPort: 53},
		build.Data("question"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	var p packet.Packet
	if err := p.Decode(b).Err(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Proto, p.Src(), p.Dst(), p.DstPort())
	fmt.Printf("%s\n", p.Payload(b))
	// Output:
	// udp 192.0.2.1 192.0.2.2 53
	// question
}

func ExampleReason_Err() {
	var p packet.Packet
	err := p.Decode([]byte{0x45, 0x00}).Err()
	fmt.Println(err)
	fmt.Println(errors.Is(err, packet.DecodeError{Reason: packet.ReasonShort}))
	// Output:
	// malformed packet: short
	// true
}

func ExamplePacket_Inner() {
	// An ICMP error quotes the packet that caused it.
	_, b, err := build.ParseText("udp 192.0.2.1:4000 -> 192.0.2.2:53 len 60")
	if err != nil {
		fmt.Println(err)
		return
	}
	var p packet.Packet
	p.Decode(b)
	reply, _ := build.Unreachable(&p, b, 3, netip.Addr{})
	p.Decode(reply)
	inner, ok := p.Inner(reply)
	fmt.Println(p.String())
	fmt.Println(ok, inner.String())
	// Output:
	// icmp 192.0.2.2 -> 192.0.2.1 type 3 code 3
	// true udp 192.0.2.1:4000 -> 192.0.2.2:53
}
