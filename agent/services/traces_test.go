package services

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestAddressesOfTheLoopback: to add one that is there, and to remove one that is not, succeeds.
// Without IPv6 on the loopback an address cannot be added, but is gone.
func TestAddressesOfTheLoopback(t *testing.T) {
	nstest.Root(t)
	lab := nstest.New(t)
	n := lab.Node("host")
	six := netip.MustParseAddr("fd00:200::10")
	do := func(what string, f func(netip.Addr) error, a netip.Addr, fails bool) {
		t.Helper()
		if err := n.Do(func() error { return f(a) }); (err != nil) != fails {
			t.Errorf("%s %s: %v", what, a, err)
		}
	}
	for _, a := range []netip.Addr{netip.MustParseAddr("10.200.0.10"), six} {
		for range 2 {
			do("add", AddAddress, a, false)
		}
		for range 2 {
			do("remove", RemoveAddress, a, false)
		}
	}
	if err := n.SetSysctl("net.ipv6.conf.lo.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	do("add", AddAddress, six, true)
	do("remove", RemoveAddress, six, false)
}
