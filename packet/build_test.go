package packet

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func p4(s string) netip.Addr { return netip.MustParseAddr(s) }

func build(t testing.TB, layers ...Layer) []byte {
	t.Helper()
	b, err := Build(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// onesSum is the slow twin of sum.
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
		for _, ip := range []Layer{IPv4{Src: src, Dst: dst, Options: RouterAlert},
			IPv6{Src: src6, Dst: dst6}} {
			for _, l := range []Layer{
				TCP{SrcPort: 1, DstPort: 2, Seq: 3, Flags: FlagACK, Options: []byte{1, 1, 1, 0}},
				UDP{SrcPort: 1, DstPort: 2},
				UDPLite{SrcPort: 1, DstPort: 2}, ICMPv6{Type: 128}, ICMP{Type: 8},
				IGMP{Type: 0x16, Group: p4("224.0.0.9")},
			} {
				b := build(t, ip, l, data)
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
	whole := build(t, ip, TCP{SrcPort: 5, DstPort: 6, Flags: FlagSYN}, Data("payload"))
	part := build(t, ip, TCP{SrcPort: 5, DstPort: 6, Flags: FlagSYN, Partial: true},
		Data("payload"))
	// A card sums everything from the transport header on, checksum field included.
	be.PutUint16(part[36:], ^fold(sum(0, part[20:])))
	if !bytes.Equal(whole, part) {
		t.Errorf("finished partial checksum differs:\n% x\n% x", whole, part)
	}
}

// TestSCTPChecksum uses a check value of CRC32c and the byte order of RFC 4960 appendix B.
func TestSCTPChecksum(t *testing.T) {
	b := build(t, SCTP{SrcPort: 1, DstPort: 2, VTag: 3}, Data("chunk"))
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

// join is a slow reassembler: it puts the data of fragments together in order of offset.
func join(t *testing.T, frags [][]byte) []byte {
	t.Helper()
	var head, data []byte
	for _, f := range frags {
		var p Packet
		if r := p.Decode(f); r != ReasonNone {
			t.Fatalf("fragment %v: %v", r, p.String())
		}
		d := f[p.L4:]
		if p.Frag&FragFirst != 0 {
			start := p.L4
			if p.Version == 6 {
				// the identification ends the fragment header
				start = uint16(bytes.Index(f, []byte{0xab, 0xcd, 0xef, 0x01}) + 4)
			}
			head, d = f[:start], f[start:]
		}
		if int(p.FragOff()) != len(data) {
			t.Fatalf("fragment at %d, want %d", p.FragOff(), len(data))
		}
		data = append(data, d...)
	}
	head = bytes.Clone(head)
	if head[0]>>4 == 4 {
		be.PutUint16(head[2:], uint16(len(head)+len(data)))
		be.PutUint16(head[6:], 0)
		be.PutUint16(head[10:], 0)
		be.PutUint16(head[10:], ^fold(sum(0, head)))
		return append(head, data...)
	}
	next := head[len(head)-8]
	head = head[:len(head)-8]
	at := 6
	for i := 40; i < len(head); i += int(head[i+1])*8 + 8 {
		at = i
	}
	head[at] = next
	be.PutUint16(head[4:], uint16(len(head)-40+len(data)))
	return append(head, data...)
}

func TestSplit(t *testing.T) {
	data := make(Data, 5000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	v4 := IPv4{Src: p4("192.0.2.1"), Dst: p4("198.51.100.7"), ID: 77, TTL: 9}
	v6 := IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")}
	udp := UDP{SrcPort: 1000, DstPort: 2000}
	withOptions := v4
	withOptions.Options = []byte{131, 7, 4, 1, 2, 3, 4, 7, 7, 4, 0, 0, 0, 0, 1}
	for name, layers := range map[string][]Layer{
		"v4":         {v4, udp, data},
		"v4 options": {withOptions, udp, data},
		"v6":         {v6, udp, data},
		"v6 headers": {v6, HopByHop{Options: RouterAlert}, Destination{}, Routing{Type: 4}, udp,
			data},
		"v6 dst": {v6, Destination{}, TCP{SrcPort: 1, DstPort: 2}, data},
	} {
		b := build(t, layers...)
		for _, mtu := range []int{1280, 1281, 576, 9000} {
			frags, err := Split(b, mtu, 0xabcdef01)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if mtu == 9000 {
				if len(frags) != 1 || !bytes.Equal(frags[0], b) {
					t.Errorf("%s: a packet that fits was changed", name)
				}
				continue
			}
			if len(frags) < 5000/mtu {
				t.Errorf("%s: %d fragments", name, len(frags))
			}
			for _, f := range frags {
				if len(f) > mtu {
					t.Errorf("%s: fragment of %d bytes, mtu %d", name, len(f), mtu)
				}
			}
			if got := join(t, frags); !bytes.Equal(got, b) {
				t.Errorf("%s, mtu %d: joined packet differs", name, mtu)
			}
		}
	}
	frags, err := Split(build(t, withOptions, udp, data), 576, 0)
	if err != nil {
		t.Fatal(err)
	}
	var p Packet
	p.Decode(frags[1])
	if p.IPOptions != OptLSRR {
		t.Errorf("options of a later fragment: %b, want the loose source route only", p.IPOptions)
	}
	if _, err := Split(frags[1], 100, 0); err == nil {
		t.Error("a fragment was split again")
	}
	if _, err := Split(frags[1][:10], 100, 0); err == nil {
		t.Error("a malformed packet was split")
	}
	if _, err := Split(build(t, v6, udp, data), 50, 0); err == nil {
		t.Error("mtu 50 has no room for data")
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
		if b, err := Build(layers...); err == nil {
			t.Errorf("%+v was built: %d bytes", layers[0], len(b))
		}
	}
}
