package nat64

import (
	"net/netip"
	"slices"
	"testing"
)

// TestRFC6052Formats are the examples of RFC 6052 section 2.4.
func TestRFC6052Formats(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.33")
	for prefix, want := range map[string]string{
		"2001:db8::/32":            "2001:db8:c000:221::",
		"2001:db8:100::/40":        "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":        "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56":    "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64":    "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96":    "2001:db8:122:344::192.0.2.33",
		"64:ff9b::/96":             "64:ff9b::192.0.2.33",
		"2001:db8:122:344:5::6/96": "2001:db8:122:344:5::192.0.2.33",
	} {
		p := netip.MustParsePrefix(prefix)
		got, ok := Synthesize(p, v4)
		if !ok || got != netip.MustParseAddr(want) {
			t.Errorf("Synthesize(%s) = %v %v, want %s", prefix, got, ok, want)
		}
		if back, ok := Extract(p, got); !ok || back != v4 {
			t.Errorf("Extract(%s, %v) = %v %v", prefix, got, back, ok)
		}
	}
}

func TestRefuses(t *testing.T) {
	p := netip.MustParsePrefix("64:ff9b::/96")
	for _, a := range []string{"0.0.0.1", "127.0.0.1", "169.254.9.9", "255.255.255.255",
		"224.0.0.1", "2001:db8::1"} {
		if got, ok := Synthesize(p, netip.MustParseAddr(a)); ok {
			t.Errorf("%s became %v", a, got)
		}
	}
	for _, bad := range []string{"64:ff9b::/95", "10.0.0.0/8", "::ffff:0:0/96"} {
		if Valid(netip.MustParsePrefix(bad)) {
			t.Errorf("%s counts as a NAT64 prefix", bad)
		}
	}
	if _, ok := Extract(p, netip.MustParseAddr("2001:db8::1")); ok {
		t.Error("extracted from an address outside the prefix")
	}
}

func TestPrefixes(t *testing.T) {
	for _, want := range []string{"64:ff9b::/96", "2001:db8:122:344::/64", "2001:db8:122:300::/56",
		"2001:db8:122::/48", "2001:db8:100::/40", "2001:db8::/32"} {
		p := netip.MustParsePrefix(want)
		var answers []netip.Addr
		for _, v4 := range WellKnown {
			a, _ := Synthesize(p, v4)
			answers = append(answers, a)
		}
		if got := Prefixes(answers); !slices.Equal(got, []netip.Prefix{p}) {
			t.Errorf("Prefixes(%v) = %v want %v", answers, got, p)
		}
	}
	if got := Prefixes([]netip.Addr{netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("192.0.0.170")}); got != nil {
		t.Errorf("found %v in nothing", got)
	}
}

// TestPrefixesAreBounded: a server cannot multiply the addresses that a dialer tries.
func TestPrefixesAreBounded(t *testing.T) {
	var answers []netip.Addr
	for n := range 256 {
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n)}), 96)
		a, _ := Synthesize(p, WellKnown[0])
		answers = append(answers, a)
	}
	if got := Prefixes(answers); len(got) != maxPrefixes {
		t.Errorf("%d prefixes", len(got))
	}
}
