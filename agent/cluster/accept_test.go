package cluster

import (
	"os"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// says reports whether a problem has a text and advises to accept.
func (r *running) says(text string) bool {
	for _, p := range r.config.Problems.All() {
		if strings.Contains(p.What, text) && strings.Contains(p.Advice, "weir cluster accept") {
			return true
		}
	}
	return false
}

// begin writes an epoch, with the first version of it.
func (l *lab) begin(epoch uint64) {
	l.epoch = epoch
	l.head.Number = cluster.Number{Epoch: epoch, Count: 1}
	l.commit(store.Txn{Put: []store.Entry{l.entry(cluster.HeadKey, &l.head),
		l.entry(cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: epoch})}})
}

// TestEpochAccepted: an attacker in the store moves the epoch by small steps. So the restored store
// is an earlier one to the host, or one that is too far away. The host says so, keeps what it
// enforces, and follows when its administrator accepts; a start does not undo that.
func TestEpochAccepted(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	dir, after := t.TempDir(), t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	good := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the version", func() bool { return a.parts.now() == good })
	s, err := l.model.Read(t.Context(), cluster.Watched, 0)
	if err != nil {
		t.Fatal(err)
	}
	backup, head := s.Revision, l.head
	enforces := func(what, text string) {
		t.Helper()
		nstest.Eventually(t, what, func() bool {
			return a.parts.now() == text && l.reportOf("a").Enforced == l.head.Number
		})
	}
	restored := func(epoch uint64) {
		l.model.Rewind(backup)
		l.head = head
		l.begin(epoch)
	}
	const step = 1 << 16
	for i := range uint64(3) {
		l.begin(1 + (i+1)*step)
		nstest.Eventually(t, "a step", func() bool { return a.epoch() == l.epoch })
	}
	attacker := l.load("add 100 allow ip from any to any\n", 0)
	enforces("the version of the attacker", attacker)

	restored(2)
	nstest.Eventually(t, "the host names it", func() bool {
		return a.says("is in epoch 2 of the cluster, while this host is in 196609")
	})
	if a.parts.now() != attacker {
		t.Errorf("before anyone accepts: %q", a.parts.now())
	}
	a.acceptAlone(t, "epoch 2 accepted")
	enforces("the restored version", good)
	if a.says("is in epoch") || a.Status().Held > 0 {
		t.Errorf("afterwards: %+v, %+v", a.Status(), a.config.Problems.All())
	}

	l.begin(4 + step)
	nstest.Eventually(t, "an epoch that is far away", func() bool {
		return a.says("at most 65536 are skipped")
	})
	if _, err := a.Accept(); err != nil {
		t.Error(err)
	}
	enforces("the version of that epoch", good)

	restored(3)
	nstest.Eventually(t, "the host names it", func() bool { return a.says("is in epoch 3") })
	a.client.away(true)
	if _, err := a.Accept(); err != nil {
		t.Error(err)
	}
	a.Service.writing.Lock() // as after a crash, before it has followed the store
	err = os.CopyFS(after, os.DirFS(dir))
	a.Service.writing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	p := a.parts
	a.stop()
	a = l.start("a", after, 1, p, false)
	enforces("the version after a start", good)
	if a.epoch() != 3 || a.says("is in epoch") {
		t.Errorf("epoch %d, %+v", a.epoch(), a.config.Problems.All())
	}
}

// TestEpochAcceptedBeforeAStart: a host accepts an earlier epoch and starts again before it has
// followed the store. The later epoch, which it would believe, does not come back from its disk.
func TestEpochAcceptedBeforeAStart(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	dir, after := t.TempDir(), t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	good := l.load("add 100 allow tcp from any to any\n", 0)
	s, err := l.model.Read(t.Context(), cluster.Watched, 0)
	if err != nil {
		t.Fatal(err)
	}
	head := l.head
	l.begin(100)
	nstest.Eventually(t, "the later epoch", func() bool {
		return l.reportOf("a").Enforced == l.head.Number
	})
	l.model.Rewind(s.Revision)
	l.head = head
	l.begin(3)
	nstest.Eventually(t, "the host names it", func() bool { return a.says("is in epoch 3") })
	a.client.away(true)
	if done, err := a.Accept(); err != nil || done.Message != "epoch 3 accepted" {
		t.Fatal(done, err)
	}
	if held := a.Status().Held; held > 0 {
		t.Errorf("%d removals are held", held)
	}
	a.Service.writing.Lock() // as after a crash
	err = os.CopyFS(after, os.DirFS(dir))
	a.Service.writing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	a.stop()
	a = l.start("a", after, 1, newParts(), true)
	if a.epoch() != 3 || a.parts.now() != good {
		t.Errorf("after a start: epoch %d, rules %q", a.epoch(), a.parts.now())
	}
	a.client.away(false)
	nstest.Eventually(t, "the store is followed", func() bool {
		return l.reportOf("a").Enforced == l.head.Number
	})
}

// acceptAlone has a host accept while it cannot follow. The client may be reading its copy, which
// stays as it is.
func (a *running) acceptAlone(t *testing.T, want string) {
	t.Helper()
	a.client.away(true)
	defer a.client.away(false)
	reading := a.stored()
	had := reading.Len()
	if done, err := a.Accept(); err != nil || !strings.Contains(done.Message, want) {
		t.Errorf("%+v, %v", done, err)
	}
	if reading.Len() != had {
		t.Error("the copy that the client may be reading was changed")
	}
}

// TestEpochAcceptedBeforeRemovals: who accepts another store has not agreed to remove what the one
// before lost.
func TestEpochAcceptedBeforeRemovals(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	l.begin(1 << 10)
	nstest.Eventually(t, "b is known", func() bool {
		return a.Status().Hosts == 2 && a.epoch() == l.epoch
	})
	l.commit(store.Txn{Delete: []string{cluster.NodeTree + "b"}})
	nstest.Eventually(t, "the removal is held", func() bool { return a.Status().Held == 1 })
	l.begin(2 + 1<<17)
	nstest.Eventually(t, "an epoch that is far away", func() bool {
		return a.says("at most 65536 are skipped")
	})
	for _, want := range []string{"epoch 131074 accepted; 1 removals are still held",
		"1 removals accepted", "0 removals accepted"} {
		if done, err := a.Accept(); err != nil || !strings.HasPrefix(done.Message, want) {
			t.Errorf("%+v, %v instead of %q", done, err, want)
		}
	}
	if now := a.Status(); a.epoch() != l.epoch || now.Held > 0 || now.Hosts != 1 {
		t.Errorf("afterwards: epoch %d, %+v", a.epoch(), now)
	}
}

// TestEpochAcceptedWithSignedRules: the signatures say which store is the right one. Accepting does
// not bring an earlier one.
func TestEpochAcceptedWithSignedRules(t *testing.T) {
	l := newLab(t)
	admin := keyOf("admin")
	l.admins = cluster.KeyList{Count: 1, Keys: []cluster.Key{cluster.Key(admin[32:])}}
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	l.epoch, l.head.Number = 5, cluster.Number{Epoch: 5, Count: 1}
	if err := l.head.Sign(admin); err != nil {
		t.Fatal(err)
	}
	l.commit(store.Txn{Put: []store.Entry{l.entry(cluster.HeadKey, &l.head),
		l.entry(cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: 5})}})
	nstest.Eventually(t, "the signed epoch", func() bool { return a.epoch() == 5 })
	l.model.Rewind(0)
	l.put(cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: 2})
	about := func() bool {
		for _, p := range a.config.Problems.All() {
			if strings.Contains(p.What, "is in epoch 2 of the cluster") {
				return !strings.Contains(p.Advice, "accept")
			}
		}
		return false
	}
	nstest.Eventually(t, "the host names the store", about)
	if done, err := a.Accept(); err != nil || strings.Contains(done.Message, "epoch") ||
		a.epoch() != 5 {
		t.Errorf("%+v, %v, epoch %d", done, err, a.epoch())
	}
}
