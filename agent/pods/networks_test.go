package pods

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/pod"
)

// TestNetworks: beside the ranges of the settings count the addresses of pods outside of them. They
// count also where the settings have no ranges any more, and before the pods are taken over.
func TestNetworks(t *testing.T) {
	prefix := netip.MustParsePrefix
	recorded := []pod.Pod{{Spec: pod.Spec{Addrs: []netip.Addr{
		netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd88::2")}}}}
	for _, c := range []struct{ ranges, want []netip.Prefix }{
		{nil, []netip.Prefix{prefix("10.88.0.2/32"), prefix("fd88::2/128")}},
		{[]netip.Prefix{prefix("10.88.0.0/24")},
			[]netip.Prefix{prefix("10.88.0.0/24"), prefix("fd88::2/128")}},
	} {
		s := New(Config{Settings: Settings{Ranges: c.ranges}})
		if got := s.Networks(); !slices.Equal(got, c.ranges) {
			t.Errorf("without pods: %v, want %v", got, c.ranges)
		}
		s.recorded = recorded
		if got := s.Networks(); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
		s.manager.Store(&pod.Manager{}) // has taken over none
		if got := s.Networks(); !slices.Equal(got, c.ranges) {
			t.Errorf("when the pods are gone: %v, want %v", got, c.ranges)
		}
	}
}
