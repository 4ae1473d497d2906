package cluster

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestRequiredConns: a host needs the weir-stores of other hosts, and the others need its own.
func TestRequiredConns(t *testing.T) {
	mine, far := netip.MustParseAddrPort("192.0.2.1:2379"),
		netip.MustParseAddrPort("192.0.2.2:2379")
	others := []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}
	got := requiredConns([]netip.AddrPort{far, mine}, others,
		func(a netip.Addr) bool { return a == mine.Addr() })
	want := []api.RequiredConn{{To: far}, {From: others[0], To: mine}, {From: others[1], To: mine}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
