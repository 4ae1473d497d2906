package cluster

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// TestTrialAfterAStart: a host that starts during a trial begins with the confirmed version. It has
// the one on trial, as the others have, when it hears the store. Its copy had it before.
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

// TestAnotherCluster: a host that joins another cluster follows that one. What it kept of the one
// before, such as a higher version and its keys of administrators, does not count there.
func TestAnotherCluster(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	lost := keyOf("lost")
	l.admins = cluster.KeyList{Count: 3,
		Keys: []cluster.Key{cluster.Key(lost.Public().(ed25519.PublicKey))}}
	dir, p := t.TempDir(), newParts()
	a := l.start("a", dir, 1, p, false)
	l.load("add 100 allow tcp from any to any\n", 0)
	l.head.Number.Count = 7
	if err := l.head.Sign(lost); err != nil {
		t.Fatal(err)
	}
	l.put(cluster.HeadKey, &l.head)
	nstest.Eventually(t, "the rules of the first cluster", func() bool {
		return l.reportOf("a").Enforced == l.head.Number
	})
	before := p.now()
	a.stop()
	other := newLabOf(t, cluster.Serial{2})
	other.join("a", 2, "10.0.2.0/24")
	a = other.start("a", dir, 2, p, true)
	if p.now() != before {
		t.Errorf("until the store is heard: %q", p.now())
	}
	a.client.away(false)
	text := other.load("add 200 allow udp from any to any\n", 0)
	nstest.Eventually(t, "the rules of the other cluster", func() bool {
		return p.now() == text && other.reportOf("a").Enforced == other.head.Number
	})
	a.stop()
	local, err := disk.ReadLocal(dir)
	if err != nil || local.Cluster != other.id || local.Admins.Locked() {
		t.Errorf("the host keeps %+v, %v", local, err)
	}
}
