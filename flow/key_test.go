package flow

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// message builds an ICMP or ICMPv6 message and decodes it.
func message(t *testing.T, from, to string, typ uint8, id uint16, quote []byte) (packet.Packet,
	[]byte) {
	t.Helper()
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	layers := []build.Layer{build.IPv4{Src: src, Dst: dst},
		build.ICMP{Type: typ, Rest: uint32(id) << 16}, build.Data(quote)}
	if src.Is6() {
		layers = []build.Layer{build.IPv6{Src: src, Dst: dst},
			build.ICMPv6{Type: typ, Rest: uint32(id) << 16}, build.Data(quote)}
	}
	return decoded(t, layers...)
}

func decoded(t *testing.T, layers ...build.Layer) (p packet.Packet, b []byte) {
	t.Helper()
	b, err := build.Packet(layers...)
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Decode(b); r != packet.ReasonNone {
		t.Fatal(r)
	}
	return p, b
}

// TestErrorsGoToWhomTheyQuote: an error has a key only if it goes to the source of the packet that
// it quotes, whichever host sends it.
func TestErrorsGoToWhomTheyQuote(t *testing.T) {
	type end struct{ us, peer, router, other string }
	for _, e := range []end{
		{"10.0.0.1", "198.51.100.9", "192.0.2.7", "10.0.0.99"},
		{"2001:db8::1", "2001:db8:9::9", "2001:db8:7::7", "2001:db8::99"},
	} {
		us, peer := netip.MustParseAddr(e.us), netip.MustParseAddr(e.peer)
		kinds, echo, icmp := []uint8{3, 4, 5, 11, 12},
			build.Layer(build.ICMP{Type: 8, Rest: 7 << 16}), packet.ProtoICMP
		var ip build.Layer = build.IPv4{Src: us, Dst: peer}
		if us.Is6() {
			kinds, echo, icmp = []uint8{1, 2, 3, 4}, build.ICMPv6{Type: 128, Rest: 7 << 16},
				packet.ProtoICMPv6
			ip = build.IPv6{Src: us, Dst: peer}
		}
		for proto, l := range map[uint8]build.Layer{
			packet.ProtoTCP: build.TCP{SrcPort: 1000, DstPort: 80},
			packet.ProtoUDP: build.UDP{SrcPort: 1000, DstPort: 80}, uint8(icmp): echo,
			packet.ProtoSCTP:    build.SCTP{SrcPort: 1000, DstPort: 80},
			packet.ProtoUDPLite: build.UDPLite{SrcPort: 1000, DstPort: 80},
			packet.ProtoGRE:     build.GRE{Type: 0x800},
		} {
			about, quote := decoded(t, ip, l, build.Data("12345678"))
			want, dir, ok := KeyOf(&about, quote, 3)
			if !ok {
				t.Fatalf("protocol %d has no key", proto)
			}
			for _, kind := range kinds {
				for _, from := range []string{e.peer, e.router, e.us} {
					p, b := message(t, from, e.us, kind, 0, quote)
					if k, d, ok := KeyOf(&p, b, 3); !ok || k != want || d != dir^1 {
						t.Errorf("type %d from %s about protocol %d: %+v %v %v", kind, from, proto,
							k, d, ok)
					}
					for _, to := range []string{e.other, e.peer} {
						p, b := message(t, from, to, kind, 0, quote)
						if k, _, ok := KeyOf(&p, b, 3); ok {
							t.Errorf("type %d from %s to %s about protocol %d of %s: %+v", kind,
								from, to, proto, e.us, k)
						}
						if _, _, _, ok := QuotedKey(&p, b, 3); ok {
							t.Errorf("type %d from %s to %s quotes protocol %d of %s", kind, from,
								to, proto, e.us)
						}
					}
				}
			}
		}
	}
}

// TestQueriesAndAnswers: the key contains which end asks, the type and the id of the query. No two
// keys are the same.
func TestQueriesAndAnswers(t *testing.T) {
	for family, pairs := range map[string][][2]uint8{"10.0.0.": {{8, 0}, {13, 14}, {15, 16},
		{17, 18}}, "fd00::": {{128, 129}, {139, 140}}} {
		keys := map[Key]string{}
		for _, pair := range pairs {
			for _, id := range []uint16{0, 1, 5, 8, 11, 13, 128, 139, 65527, 65528, 65408, 65535} {
				for _, ends := range [][2]string{{"1", "2"}, {"2", "1"}, {"1", "1"}} {
					a, z := family+ends[0], family+ends[1]
					q, b := message(t, a, z, pair[0], id, nil)
					k, d, ok := KeyOf(&q, b, 0)
					r, c := message(t, z, a, pair[1], id, nil)
					l, e, ok2 := KeyOf(&r, c, 0)
					if !ok || !ok2 || k != l || d == e {
						t.Fatalf("%v from %s to %s: %+v %v %v and %+v %v %v", pair, a, z, k, d, ok,
							l, e, ok2)
					}
					if from, to := k.DisplayEnds(d); from != netip.AddrPortFrom(q.Src(), id) ||
						to != netip.AddrPortFrom(q.Dst(), id) || k.ICMPQueryType(d) != pair[0] {
						t.Errorf("shown %s -> %s, type %d", from, to, k.ICMPQueryType(d))
					}
					if other, there := keys[k]; there {
						t.Errorf("%v %d from %s to %s has the key of %s", pair, id, a, z, other)
					}
					keys[k] = q.String()
				}
			}
		}
	}
	for _, typ := range []uint8{0, 9, 10, 42, 43, 200} {
		p, b := message(t, "10.0.0.1", "10.0.0.2", typ, 5, nil)
		if k, _, ok := KeyOf(&p, b, 0); ok != (typ == 0) {
			t.Errorf("ICMP type %d: %+v %v", typ, k, ok)
		}
	}
	for _, typ := range []uint8{130, 131, 132, 133, 134, 135, 136, 137, 138, 141, 143, 144, 155,
		160} {
		p, b := message(t, "fd00::1", "fd00::2", typ, 5, make([]byte, 32))
		if k, _, ok := KeyOf(&p, b, 0); ok {
			t.Errorf("ICMPv6 type %d: %+v", typ, k)
		}
	}
}

// TestLinks: the keys of flows with link-local ends depend on the link, other keys do not.
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		from, to string
		links    bool
	}{
		{"fe80::1", "fe80::2", true}, {"fe80::1", "2001:db8::1", true},
		{"2001:db8::1", "fe80::1", true}, {"fe80::1", "ff02::fb", true},
		{"169.254.1.1", "169.254.1.2", true}, {"10.0.0.1", "169.254.169.254", false},
		{"169.254.169.254", "10.0.0.1", false},
		{"fec0::1", "2001:db8::1", false}, {"10.0.0.1", "10.0.0.2", false},
		{"2001:db8::1", "fd00::1", false}, {"::1:0:0:1", "fd00::1", false},
	} {
		src, dst := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
		var there, back packet.Packet
		if src.Is4() {
			there, _ = decoded(t, build.IPv4{Src: src, Dst: dst},
				build.UDP{SrcPort: 1000, DstPort: 53})
			back, _ = decoded(t, build.IPv4{Src: dst, Dst: src},
				build.UDP{SrcPort: 53, DstPort: 1000})
		} else {
			there, _ = decoded(t, build.IPv6{Src: src, Dst: dst},
				build.UDP{SrcPort: 1000, DstPort: 53})
			back, _ = decoded(t, build.IPv6{Src: dst, Dst: src},
				build.UDP{SrcPort: 53, DstPort: 1000})
		}
		keys := map[Key]bool{}
		for _, link := range []uint32{0, 1, 2, 3, 1 << 16, 1<<32 - 1} {
			k, d, ok := KeyOf(&there, nil, link)
			l, e, ok2 := KeyOf(&back, nil, link)
			if !ok || !ok2 || k != l || d == e {
				t.Fatalf("%s to %s on link %d: %+v %v, %+v %v", c.from, c.to, link, k, ok, l, ok2)
			}
			from, to := k.Ends(d)
			if from != netip.AddrPortFrom(src, 1000) || to != netip.AddrPortFrom(dst, 53) ||
				c.links != (k.Link() == link && k.LinkLocal()) && link != 0 {
				t.Errorf("%s to %s on link %d: %s to %s on %d", c.from, c.to, link, from, to,
					k.Link())
			}
			if again, _ := KeyBetween(packet.ProtoUDP, from, to, link); again != k {
				t.Errorf("%s to %s on link %d: %+v and %+v", c.from, c.to, link, again, k)
			}
			keys[k] = true
		}
		if want := map[bool]int{true: 6, false: 1}[c.links]; len(keys) != want ||
			LinkLocal(&there) != c.links {
			t.Errorf("%s to %s: %d keys", c.from, c.to, len(keys))
		}
	}
	// the 54 bits after the prefix are not 0
	for _, to := range []string{"fe80:0:1::2", "fe81::2", "febf::1", "fe80:0:0:1::2"} {
		p, b := decoded(t, build.IPv6{Src: netip.MustParseAddr("fe80::1"),
			Dst: netip.MustParseAddr(to)}, build.UDP{SrcPort: 1, DstPort: 2})
		if k, _, ok := KeyOf(&p, b, 3); ok {
			t.Errorf("to %s: %+v", to, k)
		}
	}
}
