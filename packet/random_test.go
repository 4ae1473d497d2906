package packet_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// randomPacket builds a packet of random layers. Most are well-formed.
func randomPacket(t testing.TB, r *rand.Rand) []byte {
	t.Helper()
	data := make([]byte, r.IntN(40))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	var layers []build.Layer
	if r.IntN(2) == 0 {
		layers = []build.Layer{randomIPv4(r)}
	} else {
		layers = randomIPv6(r)
	}
	layers = append(layers, randomTransport(r), build.Data(data))
	b, err := build.Packet(layers...)
	if err != nil {
		t.Fatalf("%+v: %v", layers, err)
	}
	if r.IntN(8) == 0 {
		b = cut(r, b)
	}
	return b
}

// randomIPv4 is a header, which may be that of a fragment, with any options.
func randomIPv4(r *rand.Rand) build.IPv4 {
	pick := func(n int) bool { return r.IntN(n) == 0 }
	ip := build.IPv4{Src: addr4(r), Dst: addr4(r), TOS: uint8(r.Uint32()),
		TTL: uint8(r.Uint32()),
		ID:  uint16(r.Uint32())}
	if pick(3) {
		ip.Flags = uint8(r.Uint32()) & 0xe0
	}
	if pick(6) {
		ip.FragOff = uint16(r.IntN(8192)) * 8
	}
	if pick(12) {
		ip.FragOff = []uint16{8, 16, 24, 65528}[r.IntN(4)]
	}
	if pick(3) {
		ip.Options = optionBytes(uint8(r.Uint32()))
		if len(ip.Options) > 32 {
			ip.Options = ip.Options[:32]
		}
		if pick(3) {
			ip.Options = append([]byte{1, 1, 0x94, 4}, ip.Options...)
		}
	}
	if pick(8) {
		// like an IGMP packet, but perhaps a fragment
		ip.Options, ip.Proto = optionBytes(packet.OptRouterAlert), packet.ProtoIGMP
	}
	return ip
}

// randomIPv6 is a header and extension headers.
func randomIPv6(r *rand.Rand) []build.Layer {
	pick := func(n int) bool { return r.IntN(n) == 0 }
	layers := []build.Layer{build.IPv6{Src: addr6(r), Dst: addr6(r), Class: uint8(r.Uint32()),
		Label: r.Uint32(), HopLimit: uint8(r.Uint32())}}
	if pick(4) {
		o := [][]byte{nil, build.RouterAlert(), {0, 0, 0, 0, 0, 0}, {0xc2, 4, 0, 0, 0, 0},
			make([]byte, 14), make([]byte, 22)}
		layers = append(layers, build.HopByHop{Options: o[r.IntN(len(o))]})
	}
	for pick(3) && len(layers) < 12 {
		layers = append(layers, randomExtension(r))
	}
	if pick(40) {
		for range r.IntN(10) {
			layers = append(layers, build.Destination{})
		}
	}
	return layers
}

// randomTransport is a header of one of the protocols that are decoded, or of any protocol.
func randomTransport(r *rand.Rand) build.Layer {
	sport, dport := uint16(r.Uint32()), uint16(r.Uint32())
	switch r.IntN(10) {
	case 0, 1, 2:
		return build.TCP{
			SrcPort: sport, DstPort: dport, Seq: r.Uint32(), Ack: r.Uint32(),
			Flags:  uint8(r.Uint32()),
			Window: uint16(r.Uint32()), Options: make([]byte, r.IntN(11)*4),
		}
	case 3, 4:
		return build.UDP{SrcPort: sport, DstPort: dport}
	case 5:
		return build.UDPLite{SrcPort: sport, DstPort: dport,
			Coverage: uint16(r.IntN(12))}
	case 6:
		return build.SCTP{SrcPort: sport, DstPort: dport, VTag: r.Uint32()}
	case 7:
		return build.ICMP{Type: uint8(r.IntN(20)), Code: uint8(r.IntN(16)),
			Rest: r.Uint32()}
	case 8:
		return build.ICMPv6{Type: uint8(r.Uint32()), Code: uint8(r.IntN(8)),
			Rest: r.Uint32()}
	}
	return build.Upper(r.Uint32())
}

// cut shortens a packet to a multiple of 8 bytes of data, with lengths to match.
func cut(r *rand.Rand, b []byte) []byte {
	head := 40
	if b[0]>>4 == 4 {
		head = int(b[0]&15) * 4
	}
	n := head + r.IntN((len(b)-head)/8+1)*8
	if b[0]>>4 == 4 {
		be.PutUint16(b[2:], uint16(n))
	} else {
		be.PutUint16(b[4:], uint16(n-40))
	}
	return b[:n]
}

// randomExtension returns an IPv6 extension header.
func randomExtension(r *rand.Rand) build.Layer {
	switch r.IntN(6) {
	case 0:
		return build.Routing{Type: uint8(r.IntN(3)), Data: make([]byte, r.IntN(24))}
	case 1:
		return build.Destination{Options: make([]byte, r.IntN(24))}
	case 2:
		return build.AH{SPI: r.Uint32(), ICV: make([]byte, r.IntN(24))}
	case 3:
		return build.HopByHop{}
	}
	off := 0
	if r.IntN(2) == 0 {
		off = r.IntN(8192) * 8
	}
	if r.IntN(4) == 0 {
		off = []int{8, 16, 24, 65528}[r.IntN(4)]
	}
	return build.Fragment{ID: r.Uint32(), Off: uint16(off), More: r.IntN(2) == 0}
}

func addr4(r *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.Uint32()), byte(r.Uint32())})
}

func addr6(r *rand.Rand) netip.Addr {
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(r.Uint32())}
	switch r.IntN(12) {
	case 0:
		a = [16]byte{15: 1}
	case 1:
		a = [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	case 2:
		a = [16]byte{0: 0xfe, 1: 0x80, 15: 9}
	case 3:
		a = [16]byte{0: 0xff, 1: 2, 15: 2}
	}
	return netip.AddrFrom16(a)
}

// mutate changes some bytes or the length of b.
func mutate(r *rand.Rand, b []byte) []byte {
	for range r.IntN(4) {
		i := r.IntN(len(b))
		if r.IntN(2) == 0 {
			i = r.IntN(min(len(b), 64))
		}
		switch r.IntN(4) {
		case 0:
			b[i] = byte(r.Uint32())
		case 1:
			b[i] ^= 1 << r.IntN(8)
		case 2:
			b[i] = byte(r.IntN(9))
		case 3:
			b[i] = []byte{0, 1, 6, 17, 43, 44, 50, 51, 58, 59, 60, 132, 136, 255}[r.IntN(14)]
		}
	}
	switch r.IntN(8) {
	case 0:
		b = b[:r.IntN(len(b)+1)]
	case 1:
		b = append(b, make([]byte, r.IntN(30))...)
	}
	return b
}

// compare fails the test when Decode, full and the reference decoder do not agree.
func compare(t testing.TB, b []byte) packet.Packet {
	t.Helper()
	p := packet.Filled()
	full := p
	want := packet.Reference(b)
	if r := p.Decode(b); p != want || r != want.Reason {
		t.Fatalf("% x\nDecode %+v\nwant   %+v", b, p, want)
	}
	if len(b) >= 20 {
		if packet.Full(&full, b); full != want {
			t.Fatalf("% x\nfull %+v\nwant %+v", b, full, want)
		}
	}
	return p
}

func TestDecodeAgreesWithReference(t *testing.T) { decodeRandomly(t, 30_000) }

func TestLongDecodeAgreesWithReference(t *testing.T) { decodeRandomly(t, 300_000) }

func decodeRandomly(t *testing.T, n int) {
	t.Helper()
	seed := testrand.Seed(t)
	r := rand.New(rand.NewPCG(seed, 2))
	var seen [packet.NumReasons]int
	fine := map[uint8]int{}
	for range n {
		p := compare(t, mutate(r, randomPacket(t, r)))
		seen[p.Reason]++
		if p.Reason == packet.ReasonNone {
			fine[uint8(p.Proto)]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for reason, count := range seen {
		if count == 0 && packet.Reason(reason) < packet.ReasonLink {
			t.Errorf("the generator makes no packet that is refused as %v", packet.Reason(reason))
		}
	}
	for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP,
		packet.ProtoUDPLite, packet.ProtoICMP,
		packet.ProtoICMPv6} {
		if fine[proto] < n/200 {
			t.Errorf("only %d good packets of protocol %d", fine[proto], proto)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		f.Add(mutate(r, randomPacket(f, r)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := compare(t, b)
		if inner, ok := p.Inner(b); ok &&
			(inner.Version != p.Version || inner.Reason != packet.ReasonNone) {
			t.Fatalf("inner packet %+v of %+v", inner, p)
		}
		p.WindowScale(b)
		_ = p.String()
		for l := packet.LinkRaw; l <= packet.LinkLoop+1; l++ {
			var q packet.Packet
			q.DecodeFrame(l, b)
		}
	})
}

// TestEveryLength gives every IP length, in a buffer of every length, to one packet of each kind
// that the fast path takes.
func TestEveryLength(t *testing.T) {
	for _, text := range []string{
		"tcp 192.0.2.1:1 -> 192.0.2.2:2 len 44", "udp 192.0.2.1:1 -> 192.0.2.2:2 len 32",
		"icmp 192.0.2.1 -> 192.0.2.2 len 32",
		"igmp 192.0.2.1 -> 224.0.0.9 opt ra len 32",
		"tcp [2001:db8::1]:1 -> [2001:db8::2]:2 len 64",
		"udp [2001:db8::1]:1 -> [::2]:2 len 52", "ipv6-icmp ::1 -> ::1 len 52",
		"gre 192.0.2.1 -> 192.0.2.2 len 32",
	} {
		_, whole := mustParse(t, text)
		for length := range len(whole) + 2 {
			for n := range len(whole) + 1 {
				b := append([]byte(nil), whole...)
				if b[0]>>4 == 4 {
					be.PutUint16(b[2:], uint16(length))
				} else {
					be.PutUint16(b[4:], uint16(length))
				}
				compare(t, b[:n])
			}
		}
	}
}
