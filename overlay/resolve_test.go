package overlay

import (
	"net/netip"
	"testing"
)

// TestResolve: addresses stand as they are, once; names become all their addresses, in their place.
func TestResolve(t *testing.T) {
	list, err := resolve([]string{"192.0.2.1:1", "localhost:2", "[::ffff:192.0.2.1]:1", "[2001:db8::1]:3"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 3 || list[0] != netip.MustParseAddrPort("192.0.2.1:1") || list[len(list)-1] != netip.MustParseAddrPort("[2001:db8::1]:3") {
		t.Fatalf("%v", list)
	}
	for _, a := range list[1 : len(list)-1] {
		if !a.Addr().IsLoopback() || a.Port() != 2 {
			t.Errorf("localhost:2 is %v", a)
		}
	}
}
