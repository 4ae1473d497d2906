package watch

import (
	"net/netip"
	"testing"
)

// TestAddressNames: a pod's own name comes first, a table is looked up once for an address, and no
// flood of addresses makes more than so many look-ups.
func TestAddressNames(t *testing.T) {
	pod := netip.MustParseAddr("10.88.0.2")
	s := addressNames{pods: map[netip.Addr]string{pod: "pod:web"}, found: map[netip.Addr]string{}}
	asked := 0
	tableOf := func(a netip.Addr) string {
		asked++
		if a.As4()[3]%2 == 0 {
			return "table:even"
		}
		return ""
	}
	if got := s.name(pod, tableOf); got != "pod:web" || asked != 0 {
		t.Errorf("%q after %d look-ups", got, asked)
	}
	if got := s.name(netip.Addr{}, tableOf); got != "" || asked != 0 {
		t.Errorf("no address is %q", got)
	}
	for range 2 {
		for i := range tableLookups + 1000 {
			a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			want := ""
			if i < tableLookups && i%2 == 0 {
				want = "table:even"
			}
			if got := s.name(a, tableOf); got != want {
				t.Fatalf("%s is %q, want %q", a, got, want)
			}
		}
	}
	if asked != tableLookups {
		t.Errorf("%d look-ups", asked)
	}
}
