package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/storetest"
)

// TestSignedInvitations: an invitation has the keys that hosts demand, and a store that was stolen
// cannot put others into it.
func TestSignedInvitations(t *testing.T) {
	l := newLab(t)
	a := l.init(t, "-signed")
	a.serve(t)
	x := l.join(t, a, "x")
	doc, err := cluster.Decode[cluster.AdminKeys](x.Keys)
	if err != nil || len(doc.Lists) != 1 {
		t.Fatalf("%+v: %v", doc, err)
	}
	printed := a.run(t, "invite")
	if len(printed) < 118 {
		t.Errorf("no keys in %s", printed)
	}
	attacker := cluster.AdminKeys{Lists: []cluster.KeyList{{Count: 1, Keys: []cluster.Key{{1}}}}}
	value, err := cluster.Encode(&attacker)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, l.admin(t), store.Txn{Put: []store.Entry{{Key: cluster.KeysKey, Value: value}}})
	if said := a.fails(t, "invite"); !strings.Contains(said, "not signed by those") {
		t.Errorf("an invitation with the keys of an attacker: %s", said)
	}
}

// TestLockBegunAgain: after the end of the rules lock, the next list of keys is in invitations, as
// the very first one is. A list of before the end does not come back.
func TestLockBegunAgain(t *testing.T) {
	h, model := home(t.TempDir()), storetest.NewModel(time.Minute)
	id := cluster.Serial{1}
	of := func(count uint64, keys ...cluster.Key) cluster.KeyList {
		return cluster.KeyList{Count: count, Keys: keys}
	}
	first, ended, again := of(1, cluster.Key{1}), of(2), of(3, cluster.Key{3})
	put := func(key string, d cluster.Document) {
		t.Helper()
		value, err := cluster.Encode(d)
		if err == nil {
			_, err = model.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: key,
				Value: value}}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(cluster.IdentityKey, &cluster.Identity{ID: id, Epoch: 1})
	if err := h.pinKeys(ended); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lists []cluster.KeyList
		want  cluster.KeyList
	}{{[]cluster.KeyList{first}, ended}, {[]cluster.KeyList{first, ended}, ended},
		{[]cluster.KeyList{first, ended, again}, again}} {
		if put(cluster.KeysKey, &cluster.AdminKeys{Lists: c.lists}); !c.want.Locked() {
			if err := h.mayRemove(t.Context(), model); err != nil {
				t.Errorf("without the lock: %v", err)
			}
		}
		l, _, err := h.list(t.Context(), model)
		if err != nil || l.Count != c.want.Count || l.Locked() != c.want.Locked() {
			t.Errorf("%d lists: %+v, %v; want %+v", len(c.lists), l, err, c.want)
		}
	}
	if err := h.mayRemove(t.Context(), model); err == nil {
		t.Error("a host may be removed without a signature")
	}
	if l, err := h.pinnedKeys(); err != nil || !l.Has(cluster.Key{3}) {
		t.Errorf("the host knows %+v, %v", l, err)
	}
}

// TestKeysOfFurtherStoreHosts: a store host that grow makes knows the list of the one that made
// it. So does one with an external etcd from init on: an attacker in etcd who was there first is
// refused.
func TestKeysOfFurtherStoreHosts(t *testing.T) {
	l := newLab(t)
	e := newDebianEtcd(t, l)
	external := []string{"-signed", "-etcd", "http://" + e.at}
	a := l.init(t, external...)
	a.serve(t)
	b := l.newHost(t, "b")
	file := filepath.Join(l.dir, "b.json")
	a.run(t, "grow", "b", b.address, file)
	b.run(t, "adopt", file)
	attacker := cluster.AdminKeys{Lists: []cluster.KeyList{{Count: 1, Keys: []cluster.Key{{1}}}}}
	value, err := cluster.Encode(&attacker)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, l.admin(t), store.Txn{Put: []store.Entry{{Key: cluster.KeysKey, Value: value}}})
	for _, args := range [][]string{{"invite"}, {"grow", "c", "127.0.0.1", file + "2"}} {
		for _, h := range []*host{a, b} {
			if said := h.fails(t, args...); !strings.Contains(said, "not signed by those") &&
				!(h == b && strings.Contains(said, "the CA's key is not on this host")) {
				t.Errorf("%v with the keys of an attacker: %s", args, said)
			}
		}
	}
	if err := os.Remove(filepath.Join(a.dir, keysFile)); err != nil {
		t.Fatal(err)
	}
	a.stop(t)
	if said := a.fails(t, append([]string{"init", "-name", "a", "-address", a.address, "-pool",
		"10.64.0.0/12:24", "-admin-file", l.adminFile()}, external...)...); !strings.Contains(said,
		"does not know") {
		t.Errorf("init with the keys of an attacker in the store: %s", said)
	}
}

// TestRemovedDespiteGarbageKeys: what an attacker in the store has written in the place of the keys
// of administrators, or of the identity of the cluster, keeps no host from being removed. With the
// rules lock the removal needs a signature as before.
func TestRemovedDespiteGarbageKeys(t *testing.T) {
	for _, init := range [][]string{nil, {"-signed"}} {
		l := newLab(t)
		a := l.init(t, init...)
		a.serve(t)
		remove := []string{"remove"}
		if init != nil {
			remove = append(remove, "-sign", l.adminFile())
		}
		at := map[string]string{"x": cluster.KeysKey, "y": cluster.IdentityKey}
		for name := range at {
			l.join(t, a, name)
		}
		database := a.database(t)
		for _, name := range []string{"x", "y"} {
			commit(t, database, put(at[name], "garbage"))
			if init != nil {
				said := a.fails(t, "remove", name)
				if !strings.Contains(said, "only signed removals") {
					t.Errorf("without a signature: %s", said)
				}
			}
			a.run(t, append(remove, name)...)
			_, there, err := document[cluster.Node](t.Context(), database, cluster.NodeTree+name)
			if there || err != nil {
				t.Errorf("%s with garbage in %s, %v: %v, %v", name, at[name], init, there, err)
			}
		}
	}
}
