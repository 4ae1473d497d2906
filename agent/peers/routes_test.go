package peers

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestKeptRoutesFollow: the routes that outlive the agent go where the device's went last.
func TestKeptRoutesFollow(t *testing.T) {
	lab := nstest.New(t)
	n, other := lab.Node("n"), lab.Node("other")
	lab.Join(n, "wire", "10.98.0.1/24 fd98::1/64", other, "wire", "10.98.0.2/24 fd98::2/64")
	lab.Join(n, "spare", "10.97.0.1/24 fd97::1/64", other, "spare", "10.97.0.2/24 fd97::2/64")
	pods := []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24"),
		netip.MustParsePrefix("fd88:2::/64")}
	for iface, vias := range map[string][2]string{"wire": {"10.98.0.2", "fd98::2"},
		"spare": {"10.97.0.2", "fd97::2"}} {
		link := n.Link(iface)
		for i, via := range vias {
			if err := n.Netlink().ReplaceRoute(nl.Route{Dst: pods[i], Via: netip.MustParseAddr(via),
				Link: link.Index}); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Do(func() error { return keepPlain(pods) }); err != nil {
			t.Fatal(err)
		}
		routes, err := n.Netlink().Routes(0)
		if err != nil {
			t.Fatal(err)
		}
		for i, via := range vias {
			var kept []string
			for _, r := range routes {
				if r.Dst == pods[i] && r.Metric == blackholeMetric {
					kept = append(kept, r.Via.String())
				}
			}
			if !slices.Equal(kept, []string{via}) {
				t.Errorf("%s by %s: kept are %v, want %s", pods[i], iface, kept, via)
			}
		}
	}
	if err := n.Do(func() error { return removePlain(pods) }); err != nil {
		t.Fatal(err)
	}
	if routes, err := n.Netlink().Routes(0); err != nil ||
		slices.ContainsFunc(routes, func(r nl.Route) bool { return slices.Contains(pods, r.Dst) }) {
		t.Errorf("left are %v, %v", routes, err)
	}
}
