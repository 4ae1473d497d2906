package cluster

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
)

// TestHostsInOrder: hosts that are gone leave the peers before others come, which may have their
// ranges.
func TestHostsInOrder(t *testing.T) {
	node := new(cluster.Node)
	var got []string
	for _, h := range inOrder(map[string]cluster.HostChange{"a": {Name: "a", Node: node},
		"b": {Name: "b"}, "c": {Name: "c", Node: node}, "d": {Name: "d"}}) {
		got = append(got, h.Name)
	}
	if want := []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestEndpointsComeBack: the peers get a host again when one of its endpoints becomes the address
// of a service of this node, or is no longer one, and no other host.
func TestEndpointsComeBack(t *testing.T) {
	l := newLab(t)
	at := map[string]netip.AddrPort{"b": netip.MustParseAddrPort("192.0.2.2:51820"),
		"c": netip.MustParseAddrPort("192.0.2.3:51820")}
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	l.join("c", 3, "10.0.3.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	for key, name := range map[byte]string{2: "b", 3: "c"} {
		s := l.start(name, t.TempDir(), key, newParts(), false)
		s.SetEndpoints([]netip.AddrPort{at[name]})
	}
	has := func(name string) bool {
		a.parts.mu.Lock()
		defer a.parts.mu.Unlock()
		return slices.Equal(a.parts.hosts[name].Addrs, []netip.AddrPort{at[name]})
	}
	nstest.Eventually(t, "the peers", func() bool { return has("b") && has("c") })
	a.parts.mu.Lock()
	clear(a.parts.hosts)
	a.parts.mu.Unlock()
	a.AddressChanged(at["b"].Addr())
	nstest.Eventually(t, "the host again", func() bool { return has("b") })
	if has("c") {
		t.Error("the peers get a host again that is not concerned")
	}
}
