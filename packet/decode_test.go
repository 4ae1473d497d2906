package packet_test

import (
	"errors"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// syn4 is a TCP SYN+ACK 1.2.3.4:123 -> 5.6.7.8:567 with 15 bytes of payload.
var syn4 = []byte{
	0x45, 0x00, 0x00, 0x37, 0xde, 0xad, 0x00, 0x00, 0x40, 0x06, 0x49, 0x5f, 1, 2, 3, 4, 5, 6, 7, 8,
	0x00, 0x7b, 0x02, 0x37, 0x00, 0x00, 0x12, 0x34, 0x00, 0x00, 0x00, 0x00, 0x50, 0x12, 0x11, 0x22,
	0x00, 0x00, 0x00, 0x00,
	'r', 'e', 'q', 'u', 'e', 's', 't', '_', 'p', 'a', 'y', 'l', 'o', 'a', 'd',
}

func TestDecodeTCP4(t *testing.T) {
	var p packet.Packet
	if r := p.Decode(append(syn4, "trailer"...)); r != packet.ReasonNone {
		t.Fatalf("reason %v", r)
	}
	want := packet.Packet{
		SrcIP: p4("1.2.3.4").As16(), DstIP: p4("5.6.7.8").As16(),
		Ports: 123<<16 | 567, Seq: 0x1234, TCPFlags: packet.FlagSYN | packet.FlagACK,
		IPID: 0xdead, L4: 20, Version: 4, Proto: packet.ProtoTCP, TTL: 64,
	}.With(0x1122, 0x50, 35)
	if p != want {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	if p.Src() != netip.MustParseAddr("1.2.3.4") || p.Dst() != netip.MustParseAddr("5.6.7.8") {
		t.Errorf("addresses %v %v", p.Src(), p.Dst())
	}
	if p.Len() != 55 || p.PayloadOffset() != 40 || p.Window() != 0x1122 || p.FragOff() != 0 {
		t.Errorf("length %d, payload at %d, window %d, fragment at %d", p.Len(), p.PayloadOffset(),
			p.Window(), p.FragOff())
	}
	if p.SrcPort() != 123 || p.DstPort() != 567 || p.PayloadLen() != 15 {
		t.Errorf("ports %d %d, payload %d", p.SrcPort(), p.DstPort(), p.PayloadLen())
	}
}

func TestDecodeShort(t *testing.T) {
	for n := range syn4 {
		p := packet.Packet{Ports: 1, SrcIP: [16]byte{1}}.With(0, 0, 3)
		want := packet.ReasonShort
		if n >= 20 {
			want = packet.ReasonLength
		}
		if r := p.Decode(syn4[:n]); r != want || p != (packet.Packet{Reason: want}) {
			t.Fatalf("%d bytes: %v, %+v", n, r, p)
		}
	}
}

func TestSize(t *testing.T) {
	if s := unsafe.Sizeof(packet.Packet{}); s != 64 {
		t.Errorf("Packet has %d bytes, want 64: a cache line", s)
	}
}

func TestNoAllocations(t *testing.T) {
	var p packet.Packet
	quote := mustBuild(t, build.IPv4{Src: p4("192.0.2.9"), Dst: p4("192.0.2.1")},
		build.ICMP{Type: 11}, build.Data(syn4))
	long := mustBuild(t, build.IPv6{Src: p4("2001:db8::1"), Dst: p4("2001:db8::2")},
		build.HopByHop{Options: build.RouterAlert()}, build.Fragment{More: true}, build.TCP{},
		make(build.Data, 4))
	text := make([]byte, 0, 200)
	for name, f := range map[string]func(){
		"Decode":      func() { p.Decode(syn4) },
		"Decode long": func() { p.Decode(long) },
		"Decode bad":  func() { p.Decode(syn4[:30]) },
		"DecodeFrame": func() { p.DecodeFrame(packet.LinkRaw, syn4) },
		"Inner":       func() { p.Decode(quote); p.Inner(quote) },
		"AppendText":  func() { text, _ = p.AppendText(text[:0]) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestEssential(t *testing.T) {
	for _, tc := range []struct {
		text string
		want bool
	}{
		{"ipv6-icmp fe80::1 -> ff02::1 type 134 ttl 255", true},
		{"ipv6-icmp fe80::1 -> ff02::2 type 133 ttl 255", true},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 135 ttl 255", true},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 136 ttl 255", true},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 136 ttl 254", false},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 136 code 1 ttl 255", false},
		{"ipv6-icmp fe80::1 -> fe80::2 type 137 ttl 255", false},
		{"ipv6-icmp fe80::1 -> fe80::2 type 135 ttl 255 ipid 1", false},
		{"ipv6-icmp :: -> ff02::16 type 143 ttl 1 opt ra", true},
		{"ipv6-icmp fe80::1 -> ff02::1 type 130 ttl 1 opt ra", true},
		{"ipv6-icmp fe80::1 -> ff02::1 type 131 ttl 1 opt ra", true},
		{"ipv6-icmp fe80::1 -> ff02::2 type 132 ttl 1 opt ra", true},
		{"ipv6-icmp fe80::1 -> ff02::1 type 130 ttl 1 ext hop", false},
		{"ipv6-icmp fe80::1 -> ff02::1 type 130 ttl 2 opt ra", false},
		{"ipv6-icmp 2001:db8::1 -> ff02::1 type 130 ttl 1 opt ra", false},
		{"ipv6-icmp fe80::1 -> ff02::1 type 128 ttl 255", false},
		{"udp [fe80::1]:1 -> [fe80::2]:2 ttl 255", false},
		{"icmp 10.0.0.1 -> 10.0.0.2 type 134 ttl 255", false},
	} {
		p, _ := mustParse(t, tc.text)
		if p.Essential() != tc.want {
			t.Errorf("%s: %v", tc.text, p.Essential())
		}
	}
}

func TestDHCPClient(t *testing.T) {
	for _, tc := range []struct {
		text           string
		sent, received bool
	}{
		{"udp 0.0.0.0:68 -> 255.255.255.255:67", true, false},
		{"udp 10.0.0.5:68 -> 10.0.0.1:67", true, false}, // renewal
		{"udp 10.0.0.5:68 -> 224.0.0.1:67", false, false},
		{"udp 10.0.0.1:67 -> 255.255.255.255:68", false, true},
		{"udp 10.0.0.1:67 -> 10.0.0.5:68", false, true},
		{"udp 10.0.0.1:67 -> 239.0.0.1:68", false, false},
		{"udp 10.0.0.1:67 -> 10.0.0.5:67", false, false}, // of a relay
		{"udp 10.0.0.1:68 -> 10.0.0.5:68", false, false},
		{"udp 10.0.0.1:1024 -> 10.0.0.5:68", false, false},
		{"udp [fe80::1]:546 -> [ff02::1:2]:547", true, false},
		{"udp [2001:db8::5]:546 -> [2001:db8::1]:547", true, false},
		{"udp [fe80::1]:546 -> [ff05::1:3]:547", false, false}, // from a relay
		{"udp [fe80::1]:546 -> [ff02::1]:547", false, false},
		{"udp [fe80::2]:547 -> [fe80::1]:546", false, true},
		{"udp [2001:db8::2]:547 -> [fe80::1]:546", false, false},
		{"udp [fe80::2]:547 -> [2001:db8::1]:546", false, false},
		{"udp [fe80::2]:547 -> [ff02::1]:546", false, false},
		{"udp [fe80::2]:67 -> [fe80::1]:68", false, false},
		{"udp 10.0.0.1:547 -> 10.0.0.5:546", false, false},
		{"udp [fe80::2]:547 -> [fe80::1]:546 ipid 1", false, false},
	} {
		p, _ := mustParse(t, tc.text)
		if sent, received := p.DHCPClient(); sent != tc.sent || received != tc.received {
			t.Errorf("%s: sent %v, received %v", tc.text, sent, received)
		}
	}
}

func TestWindowScale(t *testing.T) {
	ip := build.IPv4{Src: p4("192.0.2.9"), Dst: p4("192.0.2.1")}
	for name, tc := range map[string]struct {
		options []byte
		shift   uint8
		ok      bool
	}{
		"none":       {nil, 0, false},
		"alone":      {[]byte{3, 3, 7}, 7, true},
		"after mss":  {[]byte{2, 4, 5, 180, 1, 3, 3, 8}, 8, true},
		"above 14":   {[]byte{3, 3, 200}, 14, true},
		"after end":  {[]byte{0, 3, 3, 7}, 0, false},
		"bad length": {[]byte{2, 1, 3, 3, 7}, 0, false},
		"too long":   {[]byte{2, 40, 3, 3, 7}, 0, false},
		"wrong size": {[]byte{3, 4, 7, 7}, 0, false},
		"cut":        {[]byte{1, 1, 1, 3}, 0, false},
	} {
		b := mustBuild(t, ip, build.TCP{Flags: packet.FlagSYN, Options: tc.options})
		var p packet.Packet
		p.Decode(b)
		if shift, ok := p.WindowScale(b); shift != tc.shift || ok != tc.ok {
			t.Errorf("%s: %d %v", name, shift, ok)
		}
	}
	p, b := mustParse(t, "udp 1.2.3.4:1 -> 1.2.3.4:2")
	if _, ok := p.WindowScale(b); ok {
		t.Error("UDP has no window scale")
	}
}

func TestICMPKinds(t *testing.T) {
	for _, tc := range []struct {
		text                 string
		query, reply, failed bool
	}{
		{"icmp 1.2.3.4 -> 5.6.7.8 type 8", true, false, false},
		{"icmp 1.2.3.4 -> 5.6.7.8 type 0", true, true, false},
		{"icmp 1.2.3.4 -> 5.6.7.8 type 14", true, true, false},
		{"icmp 1.2.3.4 -> 5.6.7.8 type 12", false, false, true},
		{"icmp 1.2.3.4 -> 5.6.7.8 type 9", false, false, false},
		{"ipv6-icmp ::1 -> ::2 type 128", true, false, false},
		{"ipv6-icmp ::1 -> ::2 type 129", true, true, false},
		{"ipv6-icmp ::1 -> ::2 type 3", false, false, true},
		{"ipv6-icmp ::1 -> ::2 type 137", false, false, false},
		{"1 ::1 -> ::2", false, false, false},
		{"icmp 1.2.3.4 -> 5.6.7.8 frag 800", false, false, false},
	} {
		p, _ := mustParse(t, tc.text)
		if q, r := p.ICMPQuery(); q != tc.query || r != tc.reply || p.ICMPError() != tc.failed {
			t.Errorf("%s: query %v, reply %v, error %v", tc.text, q, r, p.ICMPError())
		}
	}
}

func TestPayload(t *testing.T) {
	b := append(mustBuild(t, build.IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2")},
		build.TCP{Options: make([]byte, 4)}, build.Data("text")), "trailer"...)
	var p packet.Packet
	p.Decode(b)
	if got := p.Payload(b); string(got) != "text" || cap(got) != 4 {
		t.Errorf("payload %q of capacity %d, want the four bytes of the segment", got, cap(got))
	}
	if p.Decode(b[:30]); p.Payload(b[:30]) != nil {
		t.Error("a malformed packet has a payload")
	}
}

func TestReasonErr(t *testing.T) {
	if err := packet.ReasonNone.Err(); err != nil {
		t.Errorf("ReasonNone is the error %v", err)
	}
	err := error(packet.ReasonIHL.Err())
	if !errors.Is(err, packet.DecodeError{Reason: packet.ReasonIHL}) ||
		errors.Is(err, packet.DecodeError{Reason: packet.ReasonJumbo}) ||
		err.Error() != "malformed packet: bad-ihl" {
		t.Errorf("ReasonIHL is the error %v", err)
	}
}
