package kernel

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// TestPortsForTwoCPUs: all ports towards one end are in use, and several CPUs need one at the same
// time. They find the same translation to evict; the one that comes second finds another.
func TestPortsForTwoCPUs(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 2031)
	f.race(func(n int) (from, to netip.AddrPort) {
		return end([]netip.Addr{podA, podB}[n%2], 10000+n/2), end(outsideAddr, 53)
	})
}

// TestTranslationsForTwoCPUs: as many translations as there may be are there, and several CPUs need
// one more.
func TestTranslationsForTwoCPUs(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	f.setConfig(func(c *weirConfig) { c.MaxNats = 2000 })
	f.race(func(n int) (from, to netip.AddrPort) {
		return end(outsideAddr, 10000+n), end(hostAddr, 8080)
	})
}

// race sends questions on two threads. None may be refused.
func (f *frames) race(question func(n int) (from, to netip.AddrPort)) {
	f.t.Helper()
	const each = 20000
	var wg sync.WaitGroup
	for k := range 2 {
		wg.Go(func() {
			for i := range each {
				from, to := question(2*i + k)
				f.send(from, to, build.UDP{})
			}
		})
	}
	wg.Wait()
	all, err := f.engine.Decisions()
	f.must(err)
	for d, c := range all {
		if d.Reason == firewall.ReasonNATPorts {
			f.t.Errorf("%d of %d questions were refused: nat-ports", c.Packets, 2*each)
		}
	}
}
