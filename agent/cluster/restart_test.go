package cluster

import (
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestTrialAfterAStart: a host that starts during a trial begins with the confirmed version, and
// has the one on trial, as the others have, when it hears the store; its copy had it before.
func TestTrialAfterAStart(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	dir := t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	good := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the first version", func() bool {
		return a.parts.now() == good && l.reportOf("a").Enforced == l.head.Number
	})
	trial := l.load("add 100 deny udp from any to any\n", time.Hour)
	nstest.Eventually(t, "the trial", func() bool { return a.parts.now() == trial })
	a.stop()
	a = l.start("a", dir, 1, newParts(), true)
	time.Sleep(50 * time.Millisecond) // the loader has looked
	if a.parts.now() != good {
		t.Errorf("before it hears the store: %q", a.parts.now())
	}
	a.client.away(false)
	nstest.Eventually(t, "the trial after a start", func() bool { return a.parts.now() == trial })
	l.confirm()
	nstest.Eventually(t, "the confirmation", func() bool {
		return a.parts.now() == trial && l.reportOf("a").Enforced == l.head.Number
	})
}
