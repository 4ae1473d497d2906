package cluster

import (
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestTrialThatEndsAtOnce: a trial that ends before the host has noted that it began, on a machine
// that was paused, does not keep the host from the version when it is confirmed.
func TestTrialThatEndsAtOnce(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	p := newParts()
	p.entered = func(l Load) {
		if l.Trial == 0 {
			return
		}
		p.mu.Lock()
		p.timer.Stop()
		p.rules, p.onTrial = p.before, false
		p.mu.Unlock()
		l.Reverted()
	}
	l.start("a", t.TempDir(), 1, p, false)
	first := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the first version", func() bool { return p.now() == first })
	trial := l.load("add 200 allow udp from any to any\n", time.Hour)
	nstest.Eventually(t, "the trial", func() bool {
		r := l.reportOf("a")
		return r.Enforced == l.head.Number || r.Refused != nil
	})
	l.confirm()
	nstest.Eventually(t, "the confirmed version", func() bool {
		return p.now() == trial && l.reportOf("a").Enforced == l.head.Number
	})
}
