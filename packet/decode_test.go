package packet

import (
	"net/netip"
	"testing"
	"unsafe"
)

// syn4 is a TCP SYN+ACK 1.2.3.4:123 -> 5.6.7.8:567 with 15 bytes of payload.
var syn4 = []byte{
	0x45, 0x00, 0x00, 0x37, 0xde, 0xad, 0x00, 0x00, 0x40, 0x06, 0x49, 0x5f, 1, 2, 3, 4, 5, 6, 7, 8,
	0x00, 0x7b, 0x02, 0x37, 0x00, 0x00, 0x12, 0x34, 0x00, 0x00, 0x00, 0x00, 0x50, 0x12, 0x11, 0x22, 0x00, 0x00, 0x00, 0x00,
	'r', 'e', 'q', 'u', 'e', 's', 't', '_', 'p', 'a', 'y', 'l', 'o', 'a', 'd',
}

func TestDecodeTCP4(t *testing.T) {
	var p Packet
	if r := p.Decode(append(syn4, "trailer"...)); r != ReasonNone {
		t.Fatalf("reason %v", r)
	}
	want := Packet{
		SrcLo: 0xffff01020304, DstLo: 0xffff05060708,
		Ports: 123<<16 | 567, Seq: 0x1234, Window: 0x1122, TCPFlags: FlagSYN | FlagACK, TCPOffset: 0x50,
		IPID: 0xdead, Len: 55, L4: 20, Payload: 40, Version: 4, Proto: ProtoTCP, TTL: 64,
	}
	if p != want {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	if p.Src() != netip.MustParseAddr("1.2.3.4") || p.Dst() != netip.MustParseAddr("5.6.7.8") {
		t.Errorf("addresses %v %v", p.Src(), p.Dst())
	}
	if p.SrcPort() != 123 || p.DstPort() != 567 || p.PayloadLen() != 15 {
		t.Errorf("ports %d %d, payload %d", p.SrcPort(), p.DstPort(), p.PayloadLen())
	}
}

func TestDecodeShort(t *testing.T) {
	for n := range syn4 {
		p := Packet{Ports: 1, SrcHi: 1, Payload: 3}
		want := ReasonShort
		if n >= 20 {
			want = ReasonLength
		}
		if r := p.Decode(syn4[:n]); r != want || p != (Packet{Reason: want}) {
			t.Fatalf("%d bytes: %v, %+v", n, r, p)
		}
	}
}

func TestSize(t *testing.T) {
	if s := unsafe.Sizeof(Packet{}); s != 80 {
		t.Errorf("Packet has %d bytes, want 80", s)
	}
}
