package members_test

import (
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// locked is a cluster whose rules an administrator signs.
type locked struct {
	*founded
	key      ed25519.PrivateKey
	list     cluster.KeyList
	attacker ed25519.PrivateKey
}

func foundLocked(t *testing.T) *locked {
	t.Helper()
	f := found(t, pool("10.0.0.0/16", 24))
	by, _ := f.signing(t)
	l := &locked{f, by.Key, cluster.KeyList{Count: 1, Keys: by.Admins}, keyOf(9)}
	l.document(t, cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{l.list}})
	l.head(t, l.key)
	return l
}

// document writes one as an attacker in the store does.
func (l *locked) document(t *testing.T, key string, d cluster.Document) {
	t.Helper()
	value, err := cluster.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, key, value)
}

func (l *locked) head(t *testing.T, by ed25519.PrivateKey) {
	t.Helper()
	h := &cluster.Head{Number: cluster.Number{Epoch: 1, Count: 3}, By: "a"}
	if err := h.Sign(by); err != nil {
		t.Fatal(err)
	}
	l.document(t, cluster.HeadKey, h)
}

func (l *locked) backup(t *testing.T) []store.Entry {
	t.Helper()
	all, err := l.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all.Entries
}

// TestRestoredVersionIsSigned: an administrator who restores a backup signs no version that none of
// those signed whom hosts believe, whatever keys the backup has.
func TestRestoredVersionIsSigned(t *testing.T) {
	l := foundLocked(t)
	good := l.backup(t)
	noRules := slices.DeleteFunc(slices.Clone(good), func(e store.Entry) bool {
		return e.Key == cluster.HeadKey
	})
	l.head(t, l.attacker)
	unsigned := l.backup(t)
	own := cluster.Key(l.attacker.Public().(ed25519.PublicKey))
	l.document(t, cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{
		{Count: 1, Keys: []cluster.Key{own}}}})
	foreign := l.backup(t)
	next, err := l.list.Next(l.id.ID, []cluster.Key{own}, l.key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		entries []store.Entry
		pinned  cluster.KeyList
		by      ed25519.PrivateKey
		refused string
	}{
		"signed":                      {good, l.list, l.key, ""},
		"signed, on a new host":       {good, cluster.KeyList{}, l.key, ""},
		"without a key":               {good, l.list, nil, "restore with the key"},
		"without a key and rules":     {noRules, l.list, nil, "restore with the key"}, // removals
		"by another":                  {good, l.list, l.attacker, "another administrator"},
		"version of an attacker":      {unsigned, l.list, l.key, "version 1.3 of the backup"},
		"the same, on a new host":     {unsigned, cluster.KeyList{}, l.key, "version 1.3"},
		"keys of an attacker":         {foreign, l.list, l.key, "version 1.3 of the backup"},
		"older than the list of keys": {good, next, l.attacker, "version 1.3 of the backup"},
	} {
		r, err := members.PrepareRestore(c.entries,
			members.PriorState{Epoch: 1, Admins: c.pinned}, c.by)
		if (err == nil) != (c.refused == "") ||
			err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, %v; want %q", name, r, err, c.refused)
		}
	}
}

// TestRestoredRemovalsAreSigned: of the removals in a backup, those count that an administrator has
// signed. The restore signs that of a host that this store host knows to be removed, and no other.
func TestRestoredRemovalsAreSigned(t *testing.T) {
	l := foundLocked(t)
	for _, name := range []string{"b", "c", "d", "e"} {
		l.join(t, name)
	}
	b, _ := l.node(t, "b")
	c, _ := l.node(t, "c")
	d, _ := l.node(t, "d")
	// An attacker has b removed, and hides c's serial number in the removal record of d, whose
	// removal the store host has seen. An administrator has removed e, and the attacker put its
	// entry back.
	e, entry := l.node(t, "e")
	for name, serial := range map[string]cluster.Serial{"b": b.Serial, "d": c.Serial} {
		l.document(t, cluster.RemovedTree+"node/"+name,
			&cluster.RemovalRecord{Serials: []cluster.Serial{serial}})
	}
	by, _ := l.signing(t)
	if err := members.Remove(t.Context(), l.model, "e", by); err != nil {
		t.Fatal(err)
	}
	l.write(t, entry.Key, entry.Value)

	// The attacker has also said of b that it is an administrator who was revoked. The list of
	// these has no signature.
	l.document(t, cluster.IssuedKey, &cluster.Issued{Revoked: []cluster.Serial{b.Serial}})
	s := storetest.NewModel(time.Second)
	if _, err := restore(t, s, l.backup(t), members.PriorState{Epoch: 1, Admins: l.list,
		RevokedHosts:  []cluster.Serial{d.Serial},
		RevokedOthers: []cluster.Serial{b.Serial}}, l.key); err != nil {
		t.Fatal(err)
	}
	restored := &founded{model: s}
	for name, want := range map[string]struct {
		there  bool
		signed []cluster.Serial
	}{"b": {true, nil}, "c": {true, nil}, "d": {false, []cluster.Serial{d.Serial}},
		"e": {false, []cluster.Serial{e.Serial}}} {
		if _, there := restored.value(t, cluster.NodeTree+name); there != want.there {
			t.Errorf("%s is there: %v", name, there)
		}
		key := cluster.RemovedTree + "node/" + name
		var signed []cluster.Serial
		if v, there := restored.value(t, key); there {
			record, err := cluster.Decode[cluster.RemovalRecord](v.Value)
			if err != nil {
				t.Fatal(err)
			}
			if record.Verify(key, l.list.Keys) == nil {
				signed = record.Serials
			}
		}
		if !slices.Equal(signed, want.signed) {
			t.Errorf("%s: an administrator has signed the end of %v, not %v", name, signed,
				want.signed)
		}
	}
}

// TestRestoreOnANewHost: a store host that knows no keys of administrators does not have one sign
// what an attacker has written into the backup, whatever keys that has. That is not the removal of
// a host, and not a version of the rules.
func TestRestoreOnANewHost(t *testing.T) {
	l := foundLocked(t)
	l.join(t, "b")
	b, _ := l.node(t, "b")
	const key = cluster.RemovedTree + "node/b"
	record := &cluster.RemovalRecord{Serials: []cluster.Serial{b.Serial}}
	if err := record.Sign(key, l.attacker); err != nil {
		t.Fatal(err)
	}
	l.document(t, key, record)
	without := slices.DeleteFunc(l.backup(t), func(e store.Entry) bool {
		return e.Key == cluster.KeysKey
	})
	l.document(t, cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{{Count: 2}}})
	ended := l.backup(t)
	both := cluster.KeyList{Count: 1, Keys: append(slices.Clone(l.list.Keys),
		cluster.Key(l.attacker.Public().(ed25519.PublicKey)))}
	slices.SortFunc(both.Keys, func(a, b cluster.Key) int { return slices.Compare(a[:], b[:]) })
	l.document(t, cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{both}})
	joined := l.backup(t)
	l.head(t, l.attacker)
	rules := l.backup(t)
	for name, c := range map[string]struct {
		entries []store.Entry
		refused string
	}{
		"the keys are deleted":                   {without, "file keys"},
		"the lock is ended":                      {ended, "file keys"},
		"with the key of an attacker":            {joined, ""},
		"with the key of an attacker, and rules": {rules, "version 1.3 of the backup"},
	} {
		s := storetest.NewModel(time.Second)
		_, err := restore(t, s, c.entries, members.PriorState{Epoch: 1}, l.key)
		if (err == nil) != (c.refused == "") ||
			err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v; want %q", name, err, c.refused)
		}
		if err != nil {
			continue
		}
		restored := &founded{model: s}
		if _, there := restored.value(t, cluster.NodeTree+"b"); !there {
			t.Errorf("%s: b is removed", name)
		}
		e, _ := restored.value(t, key)
		if r, err := cluster.Decode[cluster.RemovalRecord](e.Value); err != nil ||
			r.Verify(key, l.list.Keys) == nil {
			t.Errorf("%s: the removal of b is signed: %+v, %v", name, r, err)
		}
	}
}
