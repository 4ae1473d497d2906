package packet_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

func TestParseText(t *testing.T) {
	for _, tc := range []struct{ in, short string }{
		{"tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags S", "tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags S"},
		{"tcp 10.0.0.5:4000 -> 10.0.1.9:80", "tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags S"},
		{"tcp [2001:db8::1]:4000 -> [2001:db8::2]:80 flags SA seq 7 ack 9 win 100",
			"tcp [2001:db8::1]:4000 -> [2001:db8::2]:80 flags SA"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 flags none", "tcp 1.2.3.4:1 -> 5.6.7.8:2 flags none"},
		{"udp 1.2.3.4:53 -> 5.6.7.8:5353 len 120 ttl 1", "udp 1.2.3.4:53 -> 5.6.7.8:5353"},
		{"icmp 1.2.3.4 -> 5.6.7.8", "icmp 1.2.3.4 -> 5.6.7.8 type 8 code 0"},
		{"icmp 1.2.3.4 -> 5.6.7.8 type 3 code 1", "icmp 1.2.3.4 -> 5.6.7.8 type 3 code 1"},
		{"ipv6-icmp fe80::1 -> ff02::1 type 134 ttl 255",
			"ipv6-icmp fe80::1 -> ff02::1 type 134 code 0"},
		{"ipv6-icmp :: -> ff02::16 type 143 ttl 1 opt ra",
			"ipv6-icmp :: -> ff02::16 type 143 code 0"},
		{"sctp 1.2.3.4:5 -> 5.6.7.8:6 vtag 0xdeadbeef", "sctp 1.2.3.4:5 -> 5.6.7.8:6"},
		{"gre 1.2.3.4 -> 5.6.7.8", "gre 1.2.3.4 -> 5.6.7.8"},
		{"89 1.2.3.4 -> 224.0.0.5 ttl 1", "ospf 1.2.3.4 -> 224.0.0.5"},
		{"254 1.2.3.4 -> 224.0.0.5 ttl 1", "254 1.2.3.4 -> 224.0.0.5"},
		{"icmp6 fe80::1 -> ff02::1", "ipv6-icmp fe80::1 -> ff02::1 type 128 code 0"},
		{"udp 1.2.3.4 -> 5.6.7.8 frag 1480 mf ipid 7", "udp 1.2.3.4 -> 5.6.7.8 frag 1480 mf"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 mf ipid 7", "tcp 1.2.3.4:1 -> 5.6.7.8:2 flags S frag 0 mf"},
		{"udp 2001:db8::1 -> 2001:db8::2 frag 1232 ipid 70000",
			"udp 2001:db8::1 -> 2001:db8::2 frag 1232"},
		{"tcp [2001:db8::1]:1 -> [2001:db8::2]:2 ext hop,dst,rt0,ah",
			"tcp [2001:db8::1]:1 -> [2001:db8::2]:2 flags S"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 opt ssrr,lsrr,rr,ts,ra df",
			"tcp 1.2.3.4:1 -> 5.6.7.8:2 flags S"},
	} {
		p, b, err := build.ParseText(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if got := p.String(); got != tc.short {
			t.Errorf("%s: printed as %s, want %s", tc.in, got, tc.short)
		}
		var q packet.Packet
		if q.Decode(b); q != p {
			t.Errorf("%s: the bytes are another packet: %v", tc.in, q.String())
		}
		full, err := p.AppendText(nil)
		if err != nil {
			t.Error(err)
		}
		if q, _, err = build.ParseText(string(full)); err != nil || q != p {
			t.Errorf("%s: read back from %s: %v\n%+v\n%+v", tc.in, full, err, p, q)
		}
	}
}

func TestParseTextFields(t *testing.T) {
	p, _, err := build.ParseText("tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags SAEC seq 1 ack 2 win 3 " +
		"ttl 4 " +
		"tos 5 ipid 6 df len 100 opt rr")
	if err != nil {
		t.Fatal(err)
	}
	want := packet.Packet{SrcIP: p4("10.0.0.5").As16(), DstIP: p4("10.0.1.9").As16(),
		Ports: 4000<<16 | 80,
		Seq:   1, Ack: 2,
		TCPFlags: packet.FlagSYN | packet.FlagACK | packet.FlagECE | packet.FlagCWR,
		TTL:      4, TOS: 5, IPID: 6,
		Frag:      packet.FragDF,
		IPOptions: packet.OptRR, L4: 28, Version: 4, Proto: packet.ProtoTCP}.With(3, 0x50, 72)
	if p != want {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
}

func TestParseTextErrors(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "not PROTO SRC -> DST"},
		{"tcp 1.2.3.4:1 5.6.7.8:2", "not PROTO SRC -> DST"},
		{"tpc 1.2.3.4:1 -> 5.6.7.8:2", `unknown protocol "tpc"`},
		{"256 1.2.3.4 -> 5.6.7.8", `unknown protocol "256"`},
		{"tcp 1.2.3.4 -> 5.6.7.8:2", `"1.2.3.4" is not ADDRESS:PORT`},
		{"tcp 1.2.3.4:65536 -> 5.6.7.8:2", `"1.2.3.4:65536" is not`},
		{"icmp 1.2.3.4:1 -> 5.6.7.8", `"1.2.3.4:1" is not an IPv4`},
		{"ipv6-icmp fe80::1%eth0 -> ff02::1", `"fe80::1%eth0" is not an IPv4`},
		{"udp [::ffff:1.2.3.4]:1 -> [::1]:2", "is not ADDRESS:PORT"},
		{"udp 1.2.3.4:1 -> [::1]:2", "different address families"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 flags X", `flags "X": want letters of FSRPAUEC`},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 flags", `"flags": unknown word, or its value is missing`},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 bogus 1", `unknown word "bogus"`},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 ttl 256", `ttl "256": want a number up to 255`},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 ttl 0", "ttl 0"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 len 39", "the headers alone have 40 bytes"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 len 131071", "at most 65535"},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 opt nop", `unknown option or header "nop"`},
		{"tcp 1.2.3.4:1 -> 5.6.7.8:2 ext hop", "IPv4 has no extension headers"},
		{"tcp 1.2.3.4 -> 5.6.7.8 frag 8", "frag-overlap"},
		{"udp 1.2.3.4 -> 5.6.7.8 frag 9", "multiple of 8"},
		{"udp 1.2.3.4 -> 5.6.7.8 frag 65528", "frag-past-end"},
		{"tcp [::1]:1 -> [::2]:2 df", "IPv6 has no such flags"},
	} {
		_, _, err := build.ParseText(tc.in)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v, want one with %q", tc.in, err, tc.want)
		}
	}
}

func TestStringOfMalformed(t *testing.T) {
	var p packet.Packet
	p.Decode([]byte{1, 2, 3})
	if got := p.String(); got != "malformed short" {
		t.Errorf("got %q", got)
	}
	b, err := build.Packet(build.IPv4{Src: addr4(rand.New(rand.NewPCG(1, 1))), Dst: p4("1.2.3.4"),
		Proto: packet.ProtoTCP}, build.Data("short"))
	if err != nil {
		t.Fatal(err)
	}
	p.Decode(b)
	if got := p.String(); !strings.HasPrefix(got, "tcp 10.") ||
		!strings.HasSuffix(got, " -> 1.2.3.4 malformed short-transport") {
		t.Errorf("got %q", got)
	}
}

func FuzzParseText(f *testing.F) {
	f.Add("tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags S")
	f.Add("ipv6-icmp :: -> ff02::16 type 143 ttl 1 opt ra len 99")
	f.Add("udp 2001:db8::1 -> 2001:db8::2 frag 1232 mf ipid 70000 ext hop,dst")
	f.Add("89 1.2.3.4 -> 224.0.0.5 opt rr,ts rf df tos 0x10")
	f.Fuzz(func(t *testing.T, s string) {
		p, b, err := build.ParseText(s)
		if err != nil {
			return
		}
		if compare(t, b) != p {
			t.Fatalf("%q: the bytes decode to another packet", s)
		}
		full, err := p.AppendText(nil)
		if err != nil {
			t.Fatal(err)
		}
		if q, _, err := build.ParseText(string(full)); err != nil || q != p {
			t.Fatalf("%q: read back from %q: %v\n%+v\n%+v", s, full, err, p, q)
		}
	})
}
