package nat

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
)

func binats(lines ...string) (s Settings, err error) {
	var all []BinatFile
	for _, line := range lines {
		listen, to, _ := strings.Cut(line, " ")
		all = append(all, BinatFile{Listen: listen, To: to})
	}
	return s, s.Apply([]ForwardFile{{Listen: "203.0.113.9:22", To: "10.0.6.9:22"}},
		[]MasqueradeFile{{Source: "10.0.5.0/24"}, {Source: "10.0.5.7/32", To: "203.0.113.7"}}, all)
}

// TestBinatsApply: both halves of each reach the engine beside forwarded ports and source NAT, and
// nothing does when the target or the only address of an interface is the host's.
func TestBinatsApply(t *testing.T) {
	s, err := binats("203.0.113.9 10.0.5.9", "2001:db8::9 fd00:5::9")
	if err != nil {
		t.Fatal(err)
	}
	var ports []forward.Published
	router := [2]bool{}
	c := Config{Settings: s, Problems: &problem.List{Log: slog.New(slog.DiscardHandler)},
		SetForwards:   func(all []forward.Published) error { ports = all; return nil },
		SetForwarding: func(four, six bool) error { router = [2]bool{four, six}; return nil },
		SetMasquerade: func() error { return nil },
		IsMe:          func(netip.Addr) bool { return false },
		IsOnly:        func(netip.Addr, []netip.Addr) bool { return false }}
	if err := New(c).Apply(); err != nil || len(ports) != 3 || router != [2]bool{true, true} {
		t.Fatalf("%v, ports %v, router %v", err, ports, router)
	}
	if p := ports[1]; p.Proto != 0 || p.Host.String() != "203.0.113.9:0" ||
		p.Pod.String() != "10.0.5.9:0" {
		t.Errorf("inward %+v", p)
	}
	others, near := New(c).SourceNATs()
	m := forward.Masquerade{Others: others, Near: near}
	for a, want := range map[string]forward.SourceNAT{
		"10.0.5.9/32": {To: netip.MustParseAddr("203.0.113.9"), Keep: true},
		"10.0.5.7/32": {To: netip.MustParseAddr("203.0.113.7")}, "10.0.5.8/32": {},
		"fd00:5::9/128": {To: netip.MustParseAddr("2001:db8::9"), Keep: true},
	} {
		got, ok := m.Behind(netip.MustParsePrefix(a))
		if !ok || got.To != want.To || got.Keep != want.Keep {
			t.Errorf("%s as %+v, %v", a, got, ok)
		}
	}
	if len(near) != 5 || len(s.Masquerades) != 2 {
		t.Errorf("near %v, masquerades %v", near, s.Masquerades)
	}
	if v := New(c).Binats(); len(v) != 2 || v[1].To.String() != "fd00:5::9" {
		t.Errorf("shown as %+v", v)
	}
	for a, want := range map[string]string{"2001:db8::9": "[[binat]] 2", "10.0.5.9": "[[",
		"fd00:5::9": "[[binat]] 2", "203.0.113.7": "[[masquerade]] 2", "203.0.113.10": ""} {
		err := New(c).CheckServiceAddress(netip.MustParseAddr(a))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s for a service: %v, not %q", a, err, want)
		}
	}
}

func TestBinatsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"203.0.113.9":                 `to: "" is not an address`,
		"203.0.113.0/24 10.0.5.9":     `listen: "203.0.113.0/24" is not an address`,
		"0.0.0.0 10.0.5.9":            "listen: 0.0.0.0 is not an address that packets",
		"203.0.113.8 127.0.0.1":       "to: 127.0.0.1 is not an address that packets",
		"203.0.113.8 fe80::1":         "to: fe80::1 is not",
		"255.255.255.255 10.0.5.10":   "listen: 255.255.255.255 is not an address that packets",
		"fe80::1%eth0 fd00::1":        "listen: ",
		"::ffff:203.0.113.8 10.0.5.9": "listen: ",
		"203.0.113.8 fd00::1":         "are of different address families",
		"203.0.113.8 203.0.113.8":     "listen and to have the same address",
		"203.0.113.9 10.0.5.10":       "listen: 203.0.113.9 is that of [[binat]] 1 already",
		"203.0.113.10 10.0.5.9":       "to: 10.0.5.9 is that of [[binat]] 1 already",
		"10.0.5.9 10.0.5.10":          "are those of [[binat]] 1 in another order",
		"203.0.113.7 10.0.5.10":       "listen: 203.0.113.7 is the address of [[masquerade]] 2",
		"203.0.113.10 10.0.5.7":       "to: 10.0.5.7 has its address by [[masquerade]] 2 already",
	} {
		_, err := binats("203.0.113.9 10.0.5.9", line)
		if err == nil || !strings.HasPrefix(err.Error(), "[[binat]] 2: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", line, err, want)
		}
	}
	s, err := binats("203.0.113.9 10.88.0.9")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check([]netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}, 0); err == nil ||
		!strings.Contains(err.Error(), "[[binat]] 1: 203.0.113.9 or 10.88.0.9 is in pods.ranges") {
		t.Errorf("a pod: %v", err)
	}
}
