package main

import (
	"crypto/ed25519"
	"slices"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/storetest"
)

// TestRevocationNeedsASignature: with the rules lock, a removal record that a thief has written
// into the database ends nothing: a restore would have an administrator sign the removal of that
// host.
func TestRevocationNeedsASignature(t *testing.T) {
	l := newLab(t)
	a := l.init(t, "-signed")
	a.serve(t)
	serial := map[string]cluster.Serial{}
	for _, name := range []string{"x", "y"} {
		p, err := l.join(t, a, name).Credential.Peer()
		if err != nil {
			t.Fatal(err)
		}
		serial[name] = cluster.Serial(p.Serial)
	}
	h := home(a.dir)
	cfg, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	database, err := h.driver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	forged, err := cluster.Encode(&cluster.RemovalRecord{Serials: []cluster.Serial{serial["x"]}})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, database, put(cluster.RemovedTree+"node/x", string(forged)))
	a.run(t, "remove", "-sign", l.adminFile(), "y")
	var known []cluster.Serial
	storetest.Eventually(t, "the removal of y is in the file", func() bool {
		e, err := h.readRevocations()
		if err != nil {
			t.Fatal(err)
		}
		known = e.all()
		return slices.Contains(known, serial["y"])
	})
	if slices.Contains(known, serial["x"]) {
		t.Error("the removal record of a thief ends x")
	}
}

// TestRevocationsFollowTheKeys: a removal record counts by each list of keys that comes in the same
// step, and by a list that is over no more.
func TestRevocationsFollowTheKeys(t *testing.T) {
	one, two := signingKey(t), signingKey(t)
	of := cluster.Serial{1}
	first := cluster.KeyList{Count: 1, Keys: []cluster.Key{admin.KeyOf(one)}}
	second, err := first.Next(of, []cluster.Key{admin.KeyOf(two)}, one)
	if err != nil {
		t.Fatal(err)
	}
	e := &revocations{of: of, keys: first, news: make(chan struct{}, 1),
		known: map[cluster.Serial]bool{}}
	change := func(key string, d cluster.Document) store.Change {
		value, err := cluster.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		return store.Change{Entry: store.Entry{Key: key, Value: value}}
	}
	record := func(serial byte, by ed25519.PrivateKey) store.Change {
		const key = cluster.RemovedTree + "node/b"
		m := &cluster.RemovalRecord{Serials: []cluster.Serial{{serial}}}
		if err := m.Sign(key, by); err != nil {
			t.Fatal(err)
		}
		return change(key, m)
	}
	e.note([]store.Change{record(1, one), change(cluster.KeysKey,
		&cluster.AdminKeys{Lists: []cluster.KeyList{first, second}})})
	e.note([]store.Change{record(2, one)})
	e.note([]store.Change{record(3, two)})
	if got := e.all(); !slices.Equal(got, []cluster.Serial{{1}, {3}}) {
		t.Errorf("revoked: %v", got)
	}
}

func signingKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}
