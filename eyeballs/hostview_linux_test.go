package eyeballs

import (
	"hash/fnv"
	"net/netip"
	"testing"
)

func TestParseRoute(t *testing.T) {
	const head = "Iface\tDestination\tGateway " +
		"\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	for text, want := range map[string]bool{
		"":   false,
		head: false,
		head + "lo\t0000007F\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n":   false,
		head + "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n": true,
		head + "eth0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0\n": false, // down
		// unreachable
		head + "*\t0000000A\t00000000\t0201\t0\t0\t0\t000000FF\t0\t0\t0\n":     false,
		head + "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nx": true,
	} {
		h := fnv.New64a()
		if got := parseRoute(text, h); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if changed := h.Sum64() != fnv.New64a().Sum64(); changed != want {
			t.Errorf("%q: hash changed: %v", text, changed)
		}
	}
}

func TestParseIfInet6(t *testing.T) {
	h := fnv.New64a()
	if any, _ := parseIfInet6("00000000000000000000000000000001 01 80 10 80       lo\n"+
		"fe8000000000000000fc00fffe000001 02 40 20 80     eth0\n", h); any {
		t.Error("loopback and link-local addresses count as connectivity")
	}
	if any, _ := parseIfInet6("20010db8000000000000000000000002 02 40 00 c0     eth0\n", h); any {
		t.Error("a tentative address counts")
	}
	any, old := parseIfInet6("20010db8000000000000000000000002 02 40 00 a0     eth0\n"+
		"20010db8000000000000000000000003 02 40 00 80     eth0\nbad line\n", h)
	if !any || len(old) != 1 || !old[netip.MustParseAddr("2001:db8::2")] {
		t.Errorf("any %v, deprecated %v", any, old)
	}
}

func TestReadHostView(t *testing.T) {
	v := readHostView()
	if v.route4.IsValid() && !v.v4 || v.route6.IsValid() && !v.v6 {
		t.Errorf("a route without a family: %+v", v)
	}
	if again := readHostView(); again.id != v.id {
		t.Error("the same network twice has two ids")
	}
	if src := v.source(netip.MustParseAddr("127.0.0.1")); !src.IsLoopback() {
		t.Errorf("from %v to loopback", src)
	}
}
