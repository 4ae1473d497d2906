package services

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestAddressesOfTheLoopback: to add one that is there, and to remove one that is not, succeeds.
// Without IPv6 on the loopback an address cannot be added, but is gone.
func TestAddressesOfTheLoopback(t *testing.T) {
	nstest.RequireRoot(t)
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

// TestTracesOfARecordThatCannotBeRead: its addresses leave the loopback. Where records are kept it
// stays as it is, since another Weir may have written it; else it goes.
func TestTracesOfARecordThatCannotBeRead(t *testing.T) {
	nstest.RequireRoot(t)
	n := nstest.New(t).Node("host")
	virtual := netip.MustParseAddr("10.200.0.10")
	for name, text := range map[string]string{
		"of a later version": `{"version": 99, "addresses": ["10.200.0.10"], "services": 1}`,
		"damaged":            `{"version": 1, "addresses": ["10.200.0.10"], "servi`,
	} {
		for _, keep := range []bool{true, false} {
			file := filepath.Join(t.TempDir(), "services.json")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := n.Do(func() error { return AddAddress(virtual) }); err != nil {
				t.Fatal(err)
			}
			if err := n.Do(func() error { return RemoveTraces(file, keep) }); err != nil {
				t.Errorf("%s, keep %v: %v", name, keep, err)
			}
			held, err := n.Netlink().Addrs(loopback)
			if err != nil || slices.ContainsFunc(held, func(a nl.Addr) bool {
				return a.Prefix.Addr() == virtual
			}) {
				t.Errorf("%s, keep %v: the loopback has %v, %v", name, keep, held, err)
			}
			left, err := os.ReadFile(file)
			if keep && string(left) != text || !keep && !os.IsNotExist(err) {
				t.Errorf("%s, keep %v: left %q, %v", name, keep, left, err)
			}
		}
	}
}
