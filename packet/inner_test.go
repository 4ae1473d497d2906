package packet_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestInnerAgreesWithDecode quotes random good packets whole: what Inner sets must be
// what Decode sets.
func TestInnerAgreesWithDecode(t *testing.T) {
	seed := testrand.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	found := 0
	for range 20_000 {
		b := randomPacket(t, r)
		var p packet.Packet
		if p.Decode(b) != packet.ReasonNone {
			continue
		}
		var outer []byte
		if p.Version == 4 {
			outer = mustBuild(t, build.IPv4{Src: p4("192.0.2.9"), Dst: p4("192.0.2.1")},
				build.ICMP{Type: 11},
				build.Data(b))
		} else {
			outer = mustBuild(t, build.IPv6{Src: p4("2001:db8::9"), Dst: p4("2001:db8::1")},
				build.ICMPv6{Type: 3},
				build.Data(b))
		}
		var o packet.Packet
		o.Decode(outer)
		inner, ok := o.Inner(outer)
		if p.Frag&packet.FragLater != 0 {
			if ok {
				t.Fatalf("seed %d: a later fragment was taken: %v", seed, p.String())
			}
			continue
		}
		if !ok {
			t.Fatalf("seed %d: no inner packet: %v", seed, p.String())
		}
		found++
		want := packet.QuoteOf(p)
		if inner != want {
			t.Fatalf("seed %d\ngot  %+v\nwant %+v", seed, inner, want)
		}
	}
	if found < 5000 {
		t.Errorf("only %d inner packets", found)
	}
}

func TestInnerOfCutQuote(t *testing.T) {
	for _, tc := range []struct {
		text string
		need int // bytes of the quote that are enough
	}{
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 seq 5 len 900", 28},
		{"udp 192.0.2.1:1000 -> 192.0.2.2:53 len 60", 28},
		{"udp 192.0.2.1:1000 -> 192.0.2.2:53 opt rr", 36},
		{"sctp 192.0.2.1:1000 -> 192.0.2.2:53 vtag 9", 28},
		{"icmp 192.0.2.1 -> 192.0.2.2 type 8 id 77", 28},
		{"gre 192.0.2.1 -> 192.0.2.2 len 60", 20},
		{"udp [2001:db8::1]:1000 -> [2001:db8::2]:53 ext hop,dst", 64},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 id 77", 48},
	} {
		p, b := mustParse(t, tc.text)
		for n := range len(b) + 1 {
			var outer []byte
			if p.Version == 4 {
				outer = mustBuild(t, build.IPv4{Src: p4("192.0.2.9"), Dst: p4("192.0.2.1")},
					build.ICMP{Type: 3, Code: 4}, build.Data(b[:n]))
			} else {
				outer = mustBuild(t, build.IPv6{Src: p4("2001:db8::9"), Dst: p4("2001:db8::1")},
					build.ICMPv6{Type: 2}, build.Data(b[:n]))
			}
			var o packet.Packet
			o.Decode(outer)
			inner, ok := o.Inner(outer)
			if ok != (n >= tc.need) {
				t.Fatalf("%s: %d bytes: found %v", tc.text, n, ok)
			}
			if !ok && inner != (packet.Packet{}) {
				t.Fatalf("%s: %d bytes: not found, but not empty: %+v", tc.text, n, inner)
			}
			if ok && (inner.Ports != p.Ports || inner.Seq != p.Seq ||
				inner.ICMPType() != p.ICMPType() || inner.Len() != p.Len()) {
				t.Fatalf("%s: %d bytes: %+v", tc.text, n, inner)
			}
		}
	}
}

func TestInnerRefused(t *testing.T) {
	quote4 := mustBuild(t, build.IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	quote6 := mustBuild(t, build.IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	mapped := mustBuild(t, build.IPv6{Src: p4("::ffff:192.0.2.1"), Dst: p4("2001:db8::2")},
		build.UDP{SrcPort: 1, DstPort: 2})
	nine := []build.Layer{build.IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")}}
	for range 9 {
		nine = append(nine, build.Destination{})
	}
	long := mustBuild(t, append(nine, build.UDP{})...)
	out4, out6 := build.IPv4{Src: p4("192.0.2.9"), Dst: p4("192.0.2.1")},
		build.IPv6{Src: p4("2001:db8::9"), Dst: p4("2001:db8::1")}
	for name, b := range map[string][]byte{
		"echo reply":      mustBuild(t, out4, build.ICMP{Type: 0}, build.Data(quote4)),
		"other family":    mustBuild(t, out4, build.ICMP{Type: 3}, build.Data(quote6)),
		"other family 6":  mustBuild(t, out6, build.ICMPv6{Type: 1}, build.Data(quote4)),
		"ICMP in IPv6":    mustBuild(t, out6, build.ICMP{Type: 3}, build.Data(quote6)),
		"redirect in v6":  mustBuild(t, out6, build.ICMPv6{Type: 137}, build.Data(quote6)),
		"mapped":          mustBuild(t, out6, build.ICMPv6{Type: 1}, build.Data(mapped)),
		"nine extensions": mustBuild(t, out6, build.ICMPv6{Type: 1}, build.Data(long)),
		"fragment": mustBuild(t, build.IPv4{Src: out4.Src, Dst: out4.Dst, FragOff: 8},
			build.ICMP{Type: 3},
			build.Data(quote4)),
		"not ICMP": quote4,
	} {
		var p packet.Packet
		p.Decode(b)
		if inner, ok := p.Inner(b); ok {
			t.Errorf("%s: found %v", name, inner.String())
		}
	}
}
