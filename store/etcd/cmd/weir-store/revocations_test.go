package main

import (
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/storetest"
)

// TestRevocationNeedsASignature: with the rules lock, a removal record that an attacker has written
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
	database := a.database(t)
	forged, err := cluster.Encode(&cluster.RemovalRecord{Serials: []cluster.Serial{serial["x"]}})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, database, put(cluster.RemovedTree+"node/x", string(forged)))
	commit(t, database, put(cluster.IssuedKey, revoking(t, database, serial["x"])))
	a.run(t, "remove", "-sign", l.adminFile(), "y")
	var known revokedSerials
	storetest.Eventually(t, "the removal of y is in the file", func() bool {
		e, err := home(a.dir).readRevocations()
		if err != nil {
			t.Fatal(err)
		}
		known = e.all()
		return slices.Contains(known.Hosts, serial["y"])
	})
	if slices.Contains(known.Hosts, serial["x"]) {
		t.Error("what an attacker has written ends x")
	}
	if !slices.Contains(known.Others, serial["x"]) {
		t.Error("the list of what was revoked was not seen: it tests less than it says")
	}
}

// revoking returns the list of the certificates of admins and feeds, which says of one more that it
// was revoked.
func revoking(t *testing.T, s store.Store, one cluster.Serial) string {
	t.Helper()
	doc, _, err := document[cluster.Issued](t.Context(), s, cluster.IssuedKey)
	if err != nil {
		t.Fatal(err)
	}
	doc.Revoked = append(doc.Revoked, one)
	value, err := cluster.Encode(&doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// TestIssueDespiteGarbage: what an attacker in the store has written in the place of the list of
// certificates in force keeps no one from issuing new ones.
func TestIssueDespiteGarbage(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	database := a.database(t)
	commit(t, database, put(cluster.IssuedKey, "garbage"))
	a.run(t, "issue", "admin:b", filepath.Join(l.dir, "b.pem"))
	doc, _, err := document[cluster.Issued](t.Context(), database, cluster.IssuedKey)
	if err != nil || len(doc.Certificates) != 1 || doc.Certificates[0].ID != "admin:b" {
		t.Errorf("in force are %v, %v", doc.Certificates, err)
	}
}

// TestRevokedOfAnEarlierWeir: the file of an earlier Weir, which has both kinds in one list, ends
// both.
func TestRevokedOfAnEarlierWeir(t *testing.T) {
	h := home(t.TempDir())
	one := cluster.Serial{1}
	if err := os.WriteFile(h.file(revokedFile), []byte("[\""+one.String()+"\"]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time as this Weir writes it
		e, err := h.readRevocations()
		if err != nil {
			t.Fatal(err)
		}
		if all := e.all(); !slices.Equal(all.Hosts, []cluster.Serial{one}) ||
			!slices.Equal(all.Others, all.Hosts) {
			t.Errorf("it has %v", all)
		}
		text, err := json.Marshal(e.all())
		if err == nil {
			err = os.WriteFile(h.file(revokedFile), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRevokedIsNotAdmitted: a host that was removed is not admitted, although the store has its
// certificate again: an earlier state of the database was put back.
func TestRevokedIsNotAdmitted(t *testing.T) {
	e := &revocations{hosts: map[cluster.Serial]bool{{1}: true}}
	for serial, admitted := range map[cluster.Serial]bool{{1}: false, {2}: true} {
		node := cluster.Node{Name: "x", Serial: serial, TLS: cluster.Key{3},
			WireGuard: cluster.Key{4}, Signature: cluster.Signature{5}}
		value, err := cluster.Encode(&node)
		if err != nil {
			t.Fatal(err)
		}
		get := func(key string) (store.Entry, bool) {
			return store.Entry{Key: key, Value: value, Revision: 1}, key == cluster.NodeTree+"x"
		}
		_, err = e.admit(get, identity.Peer{ID: identity.ID{Kind: identity.Host, Name: "x"},
			Serial: identity.Serial(serial), Key: node.TLS[:]})
		if (err == nil) != admitted {
			t.Errorf("certificate %v: %v", serial, err)
		}
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
		hosts: map[cluster.Serial]bool{}, others: map[cluster.Serial]bool{}}
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
	if got := e.all().Hosts; !slices.Equal(got, []cluster.Serial{{1}, {3}}) {
		t.Errorf("ended: %v", got)
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
