package build

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/packet"
)

// mustParse returns the packet of a text form, and its bytes.
func mustParse(t testing.TB, s string) (packet.Packet, []byte) {
	t.Helper()
	p, b, err := ParseText(s)
	if err != nil {
		t.Fatal(err)
	}
	return p, b
}

func TestReset(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags S seq 7",
			"tcp 192.0.2.2:80 -> 192.0.2.1:1000 flags RA ack 8 df len 40"},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags A seq 7 ack 99 len 50",
			"tcp 192.0.2.2:80 -> 192.0.2.1:1000 flags R seq 99 df len 40"},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags F seq 7 len 50",
			"tcp 192.0.2.2:80 -> 192.0.2.1:1000 flags RA ack 18 df len 40"},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags none seq 0xffffffff len 41",
			"tcp 192.0.2.2:80 -> 192.0.2.1:1000 flags RA df len 40"},
		{"tcp [2001:db8::1]:1000 -> [2001:db8::2]:80 flags S seq 7",
			"tcp [2001:db8::2]:80 -> [2001:db8::1]:1000 flags RA ack 8 len 60"},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags R", ""},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags RA", ""},
		{"tcp 192.0.2.1:1000 -> 224.0.0.1:80 flags S", ""},
		{"tcp 0.0.0.0:1000 -> 192.0.2.2:80 flags S", ""},
		{"tcp 255.255.255.255:1000 -> 192.0.2.2:80 flags S", ""},
		{"tcp [::]:1000 -> [2001:db8::2]:80 flags S", ""},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:80 flags S mf", ""},
		{"udp 192.0.2.1:1000 -> 192.0.2.2:80", ""},
	} {
		p, _ := mustParse(t, tc.in)
		reply, ok := Reset(&p)
		if ok != (tc.want != "") {
			t.Errorf("%s: answered %v", tc.in, ok)
			continue
		}
		if !ok {
			continue
		}
		var r packet.Packet
		if reason := r.Decode(reply); reason != packet.ReasonNone {
			t.Errorf("%s: the reset is malformed: %v", tc.in, reason)
		}
		if got, _ := r.AppendText(nil); string(got) != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", tc.in, got, tc.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	for _, tc := range []struct {
		in   string
		src  string
		want string
	}{
		{"udp 192.0.2.1:1000 -> 192.0.2.2:53 len 60", "",
			"icmp 192.0.2.2 -> 192.0.2.1 type 3 code 13 tos 192 len 88"},
		{"udp 192.0.2.1:1000 -> 192.0.2.2:53 len 1500", "192.0.2.9",
			"icmp 192.0.2.9 -> 192.0.2.1 type 3 code 13 tos 192 len 576"},
		{"tcp 192.0.2.1:1000 -> 192.0.2.2:53 mf", "",
			"icmp 192.0.2.2 -> 192.0.2.1 type 3 code 13 tos 192 len 72"},
		{"udp [2001:db8::1]:1000 -> [2001:db8::2]:53 len 60", "",
			"ipv6-icmp 2001:db8::2 -> 2001:db8::1 type 1 code 13 len 108"},
		{"udp [2001:db8::1]:1000 -> [2001:db8::2]:53 len 1500", "",
			"ipv6-icmp 2001:db8::2 -> 2001:db8::1 type 1 code 13 len 1280"},
		{"icmp 192.0.2.1 -> 192.0.2.2 type 8", "",
			"icmp 192.0.2.2 -> 192.0.2.1 type 3 code 13 tos 192 len 56"},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 128", "",
			"ipv6-icmp 2001:db8::2 -> 2001:db8::1 type 1 code 13 len 96"},
		{"icmp 192.0.2.1 -> 192.0.2.2 type 3", "", ""},
		{"icmp 192.0.2.1 -> 192.0.2.2 type 5", "", ""},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 2", "", ""},
		{"ipv6-icmp 2001:db8::1 -> 2001:db8::2 type 100", "", ""},
		{"ipv6-icmp fe80::1 -> fe80::2 type 137", "", ""},
		{"udp 192.0.2.1 -> 192.0.2.2 frag 800", "", ""},
		{"udp 192.0.2.1:1 -> 239.1.1.1:53", "", ""},
		{"udp 192.0.2.1:1 -> 255.255.255.255:53", "", ""},
		{"udp 0.0.0.0:68 -> 192.0.2.2:67", "", ""},
		{"udp 224.0.0.1:68 -> 192.0.2.2:67", "", ""},
		{"udp [2001:db8::1]:1 -> [ff02::1]:53", "", ""},
		{"igmp 192.0.2.1 -> 192.0.2.2", "", ""},
	} {
		p, b := mustParse(t, tc.in)
		var src netip.Addr
		if tc.src != "" {
			src = p4(tc.src)
		}
		reply, ok := Unreachable(&p, b, 13, src)
		if ok != (tc.want != "") {
			t.Errorf("%s: answered %v", tc.in, ok)
			continue
		}
		if !ok {
			continue
		}
		var r packet.Packet
		if reason := r.Decode(reply); reason != packet.ReasonNone {
			t.Errorf("%s: the error is malformed: %v", tc.in, reason)
		}
		if got, _ := r.AppendText(nil); string(got) != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", tc.in, got, tc.want)
		}
		inner, ok := r.Inner(reply)
		if !ok || inner.Ports != p.Ports || inner.Src() != p.Src() || inner.Dst() != p.Dst() ||
			inner.Proto != p.Proto || inner.Len() != p.Len() {
			t.Errorf("%s: quoted packet %v, %v", tc.in, inner.String(), ok)
		}
	}
}

func TestUnreachableOfMalformed(t *testing.T) {
	b := mustBuild(t, IPv4{Src: p4("192.0.2.1"), Dst: p4("192.0.2.2"), Proto: packet.ProtoTCP},
		Data("short"))
	var p packet.Packet
	p.Decode(b)
	if _, ok := Unreachable(&p, b, 13, netip.Addr{}); ok {
		t.Error("a malformed packet was answered")
	}
	if _, ok := Reset(&p); ok {
		t.Error("a malformed packet was reset")
	}
	q, b := mustParse(t, "udp 192.0.2.1:1000 -> 192.0.2.2:53 len 60")
	if _, ok := Unreachable(&q, b[:27], 13, netip.Addr{}); ok {
		t.Error("answered with fewer bytes than the headers have")
	}
}

// TestUnreachableQuotesWhatItMay: given only the headers of a packet, it quotes nothing else.
func TestUnreachableQuotesWhatItMay(t *testing.T) {
	for in, headers := range map[string]int{
		"udp 192.0.2.1:1000 -> 192.0.2.2:53 len 60":         28,
		"tcp [2001:db8::1]:1000 -> [2001:db8::2]:53 len 99": 60,
	} {
		p, b := mustParse(t, in)
		reply, ok := Unreachable(&p, b[:headers], 3, netip.Addr{})
		if !ok || !bytes.HasSuffix(reply, b[:headers]) {
			t.Errorf("%s: %v, % x", in, ok, reply)
			continue
		}
		var r packet.Packet
		r.Decode(reply)
		inner, ok := r.Inner(reply)
		if !ok || inner.Ports != p.Ports || inner.Len() != p.Len() ||
			r.PayloadLen() != headers {
			t.Errorf("%s: quoted packet %v, %v", in, inner.String(), ok)
		}
	}
}
