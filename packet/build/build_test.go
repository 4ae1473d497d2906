package build

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/packet"
)

func p4(s string) netip.Addr { return netip.MustParseAddr(s) }

func mustBuild(t testing.TB, layers ...Layer) []byte {
	t.Helper()
	b, err := Packet(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// onesSum is the reference model of sum.
func onesSum(chunks ...[]byte) uint16 {
	var s uint64
	for _, b := range chunks {
		for i, c := range b {
			if i%2 == 0 {
				s += uint64(c) << 8
			} else {
				s += uint64(c)
			}
		}
	}
	return uint16(s % 0xffff)
}

func TestChecksums(t *testing.T) {
	src, dst := p4("192.0.2.1"), p4("198.51.100.7")
	src6, dst6 := p4("2001:db8::1"), p4("2001:db8::2")
	for _, data := range []Data{nil, Data("x"), Data("odd length data"),
		bytes.Repeat([]byte{0xff}, 3000)} {
		for _, ip := range []Layer{IPv4{Src: src, Dst: dst, Options: RouterAlert()},
			IPv6{Src: src6, Dst: dst6}} {
			for _, l := range []Layer{
				TCP{SrcPort: 1, DstPort: 2, Seq: 3, Flags: packet.FlagACK,
					Options: []byte{1, 1, 1, 0}},
				UDP{SrcPort: 1, DstPort: 2},
				UDPLite{SrcPort: 1, DstPort: 2}, ICMPv6{Type: 128}, ICMP{Type: 8},
				IGMP{Type: 0x16, Group: p4("224.0.0.9")},
			} {
				b := mustBuild(t, ip, l, data)
				head := 40
				pseudo := append(src6.AsSlice(), dst6.AsSlice()...)
				if _, ok := ip.(IPv4); ok {
					head = 24
					pseudo = append(src.AsSlice(), dst.AsSlice()...)
					if onesSum(b[:head]) != 0 {
						t.Errorf("header checksum: % x", b[:head])
					}
				}
				n := len(b) - head
				pseudo = append(pseudo, 0, byte(n>>16), byte(n>>8), byte(n), 0, byte(l.number()))
				switch l.(type) {
				case ICMP, IGMP:
					pseudo = nil
				}
				if onesSum(pseudo, b[head:]) != 0 {
					t.Errorf("%T over %T: bad checksum", l, ip)
				}
			}
		}
	}
}

func TestPartialChecksum(t *testing.T) {
	ip := IPv4{Src: p4("192.0.2.1"), Dst: p4("198.51.100.7")}
	whole := mustBuild(t, ip, TCP{SrcPort: 5, DstPort: 6, Flags: packet.FlagSYN}, Data("payload"))
	part := mustBuild(t, ip, TCP{SrcPort: 5, DstPort: 6, Flags: packet.FlagSYN, Partial: true},
		Data("payload"))
	// A network card sums everything from the transport header on, checksum field included.
	be.PutUint16(part[36:], ^fold(sum(0, part[20:])))
	if !bytes.Equal(whole, part) {
		t.Errorf("finished partial checksum differs:\n% x\n% x", whole, part)
	}
}

// TestSCTPChecksum uses a check value of CRC32c and the byte order of RFC 4960 appendix B.
func TestSCTPChecksum(t *testing.T) {
	b := mustBuild(t, SCTP{SrcPort: 1, DstPort: 2, VTag: 3}, Data("chunk"))
	got := le.Uint32(b[8:])
	clear(b[8:12])
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	if got != ^crc {
		t.Errorf("checksum %08x, want %08x", got, ^crc)
	}
}

func TestBuildErrors(t *testing.T) {
	v4, v6 := p4("192.0.2.1"), p4("2001:db8::1")
	for _, layers := range [][]Layer{
		{IPv4{Src: v4, Dst: v6}}, {IPv6{Src: v4, Dst: v6}}, {IPv4{}},
		{IPv4{Src: v4, Dst: v4, FragOff: 3}},
		{IPv4{Src: v4, Dst: v4, Options: make([]byte, 41)}},
		{IPv4{Src: v4, Dst: v4}, make(Data, 65536)},
		{IPv6{Src: v6, Dst: v6}, make(Data, 65536)}, {TCP{Options: make([]byte, 41)}},
		{Fragment{Off: 1}},
		{IGMP{Group: v6}}, {HopByHop{Options: make([]byte, 2050)}},
		{Routing{Data: make([]byte, 2050)}}, {AH{ICV: make([]byte, 1030)}},
	} {
		if b, err := Packet(layers...); err == nil {
			t.Errorf("%+v was built: %d bytes", layers[0], len(b))
		}
	}
}
