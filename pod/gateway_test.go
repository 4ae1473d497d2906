package pod

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
)

// gatewaysHeld returns the addresses of the loopback other than its own.
func (b *fixture) gatewaysHeld() (all []string) {
	b.t.Helper()
	held, err := b.host.Netlink().Addrs(1)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range held {
		if !a.Prefix.Addr().IsLoopback() {
			all = append(all, a.Prefix.Addr().String())
		}
	}
	slices.Sort(all)
	return all
}

// TestGatewaysOfEarlierRanges: a node with other ranges than before keeps the gateway addresses of
// those before while a pod has them, and no longer: they may be those of other hosts. Remove takes
// all.
func TestGatewaysOfEarlierRanges(t *testing.T) {
	b := newFixture(t)
	p, node := b.attach("one", Spec{})
	again := func(prefix string) {
		t.Helper()
		b.m.Close()
		b.start(func(c *Config) { c.Ranges = []netip.Prefix{netip.MustParsePrefix(prefix)} })
	}
	want := func(when string, want ...string) {
		t.Helper()
		if got := b.gatewaysHeld(); !slices.Equal(got, want) {
			t.Errorf("%s: the host has %v, want %v", when, got, want)
		}
	}
	want("at first", "10.88.0.1", "fd00:88::1")
	again("10.89.0.0/24")
	want("while a pod has the earlier ones", "10.88.0.1", "10.89.0.1", "fd00:88::1")
	if err := b.ping(node, p.Gateway[0]); err != nil {
		t.Error(err)
	}
	again("10.90.0.0/24")
	want("after two changes", "10.88.0.1", "10.90.0.1", "fd00:88::1")
	if err := b.m.Detach(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	again("10.90.0.0/24")
	want("without the pod", "10.90.0.1")
	b.attach("two", Spec{})
	again("10.91.0.0/24")
	want("with another pod", "10.90.0.1", "10.91.0.1")
	b.m.Close()
	if err := b.do(func() error { return Remove(filepath.Join(b.dir, "pods")) }); err != nil {
		t.Error(err)
	}
	want("removed")
}
