package cluster

import (
	"crypto/ed25519"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// TestLockedHost: a host whose invitation had keys of administrators enforces signed versions only.
// It keeps the newest list over a start without the store, also if it joined with an older one.
func TestLockedHost(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	key := func(k ed25519.PrivateKey) cluster.Key {
		return cluster.Key(k.Public().(ed25519.PublicKey))
	}
	one, two := keyOf("one"), keyOf("two")
	first, err := cluster.KeyList{}.Next(cluster.Serial{1}, []cluster.Key{key(one)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Next(cluster.Serial{1}, []cluster.Key{key(two)}, one)
	if err != nil {
		t.Fatal(err)
	}
	l.admins = first
	sign := func(by ed25519.PrivateKey) {
		t.Helper()
		if err := l.head.Sign(by); err != nil {
			t.Fatal(err)
		}
		l.put(cluster.HeadKey, &l.head)
	}
	dir, p := t.TempDir(), newParts()
	a := l.start("a", dir, 1, p, false)
	text := l.load("add 1 allow tcp from any to any 1\n", 0)
	nstest.Eventually(t, "the version is refused", func() bool { return a.Status().Claims > 0 })
	sign(one)
	nstest.Eventually(t, "the signed version", func() bool { return p.now() == text })
	l.commit(store.Txn{Put: []store.Entry{l.entry(cluster.KeysKey,
		&cluster.AdminKeys{Lists: []cluster.KeyList{first, second}})}})
	nstest.Eventually(t, "the list is on the disk", func() bool {
		local, err := disk.ReadLocal(dir)
		return err == nil && local.Admins.Has(key(two))
	})
	a.stop()
	again := l.start("a", dir, 1, p, false)
	if p.now() != text {
		t.Errorf("a start enforces %q", p.now())
	}
	never := l.load("add 2 allow tcp from any to any 2\n", 0)
	sign(one)
	nstest.Eventually(t, "a version of a removed administrator is refused", func() bool {
		return again.Status().Claims > 0
	})
	text = l.load("add 3 allow tcp from any to any 3\n", 0)
	sign(two)
	nstest.Eventually(t, "one of a listed administrator", func() bool { return p.now() == text })
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.history, never) {
		t.Errorf("what was in force: %q", p.history)
	}
}
