package kernel

import (
	"sync"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// TestPortsForTwoCPUs: all ports towards one end are in use, and several CPUs need one at the same
// time. They find the same translation to evict; the one that comes second finds another.
func TestPortsForTwoCPUs(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 2031)
	const questions = 20000
	var wg sync.WaitGroup
	for _, pod := range []*podNode{f.a, f.b} {
		wg.Go(func() {
			for i := range questions {
				from := end(pod.endpoint.Addrs[0], 10000+i)
				f.send(from, end(outsideAddr, 53), packet.UDP{})
			}
		})
	}
	wg.Wait()
	d := f.decisions(t)
	if n := d[firewall.ReasonNATPorts]; n != 0 {
		t.Errorf("%d of %d questions were refused for want of a port", n, 2*questions)
		t.Log(d)
	}
}
