package packet

import (
	"slices"
	"strings"
	"testing"
)

// TestProtoRoundTrip: ParseProto reads what String writes, for every number.
func TestProtoRoundTrip(t *testing.T) {
	for n := range 256 {
		p := Proto(n)
		if got, err := ParseProto(p.String()); err != nil || got != p {
			t.Errorf("protocol %d is written %q, which is read as %d: %v", n, p, got, err)
		}
		if got := string(p.appendTo(nil)); got != p.String() {
			t.Errorf("protocol %d is appended as %q, want %q", n, got, p)
		}
	}
}

// TestProtoNames: ParseProto reads each name, and ICMPv6 has one name in output.
func TestProtoNames(t *testing.T) {
	names := ProtoNames()
	if len(names) < 50 || !slices.IsSorted(names) {
		t.Errorf("names: %q", names)
	}
	for _, name := range names {
		p, ok := ProtoNumber(name)
		if q, err := ParseProto(name); !ok || err != nil || q != p {
			t.Errorf("%q is %d, %v, and is read as %d: %v", name, p, ok, q, err)
		}
	}
	for _, name := range []string{"ipv6-icmp", "icmp6", "icmpv6", "58"} {
		if p, err := ParseProto(name); err != nil || p != ProtoICMPv6 || p.String() != "ipv6-icmp" {
			t.Errorf("%s is read as %v: %v", name, p, err)
		}
	}
	for _, name := range []string{"", "TCP", "tpc", "256", "-1", "0x6", "ip"} {
		p, err := ParseProto(name)
		if err == nil || !strings.Contains(err.Error(), "unknown protocol") {
			t.Errorf("%q is read as %v: %v", name, p, err)
		}
	}
}

func TestProtoHasPorts(t *testing.T) {
	var with []string
	for n := range 256 {
		if Proto(n).HasPorts() {
			with = append(with, Proto(n).String())
		}
	}
	if got := strings.Join(with, " "); got != "tcp udp sctp udplite" {
		t.Errorf("protocols with ports: %s", got)
	}
}
