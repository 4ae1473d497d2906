package admin

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

func keyOf(name string) ed25519.PrivateKey {
	seed := cluster.TextDigest(name)
	return ed25519.NewKeyFromSeed(seed[:])
}

func (l *lab) loadBy(by ed25519.PrivateKey, text string, try time.Duration) (*cluster.Head, error) {
	h, _, err := Load(l.Context(), l.admin, Loading{Scope: cluster.All, Name: "f", Text: text,
		By: "me", Trial: try, Sign: by, Parse: func(name, text string) (*rule.Ruleset, error) {
			return rule.ParseFile(name, text, new(rule.Names))
		}})
	return h, err
}

// locked is a host that demands the signatures of a list.
func (l *lab) locked(list cluster.KeyList) func() *cluster.Desired {
	d := cluster.NewDesired("a", cluster.Trust{Cluster: cluster.Serial{1}, Epoch: 1, Admins: list},
		nil)
	return func() *cluster.Desired {
		l.Helper()
		s, err := l.model.Read(l.Context(), cluster.Watched, 0)
		if err != nil {
			l.Fatal(err)
		}
		var changes []store.Change
		for _, e := range s.Entries {
			changes = append(changes, store.Change{Entry: e})
		}
		d.Apply(changes)
		return d
	}
}

// TestKeys: the first list has who makes it; a locked host follows each change and every version
// that a listed administrator loads; others are refused before they write.
func TestKeys(t *testing.T) {
	l := newLab(t)
	one, two := keyOf("one"), keyOf("two")
	change := func(by ed25519.PrivateKey, add, remove []cluster.Key) (cluster.KeyList, bool) {
		t.Helper()
		list, signed, err := ChangeKeys(t.Context(), l.admin, by, add, remove)
		if err != nil {
			t.Fatal(err)
		}
		return list, signed
	}
	first, err := l.loadBy(nil, "add 1 allow ip from any to any\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	list, signed := change(one, nil, nil)
	if signed || list.Count != 1 || !list.Has(KeyOf(one)) || len(list.Keys) != 1 {
		t.Errorf("%+v, %v; the version before was never signed", list, signed)
	}
	host := l.locked(list)
	if host().Head() != nil {
		t.Error("a locked host takes a version without a signature")
	}
	// What the signer's own host does not enforce is signed on request only.
	other := *first
	other.Scopes = map[cluster.Scope]cluster.Digest{cluster.All: {1}, "role:web": {2}}
	err = Sign(t.Context(), l.admin, first.Number, one, &other, false)
	if err == nil || !strings.Contains(err.Error(), "[all role:web]") {
		t.Errorf("other rules are signed: %v", err)
	}
	if err := Sign(t.Context(), l.admin, first.Number, one, nil, false); err == nil {
		t.Error("rules are signed on a host that has none")
	}
	if err := Sign(t.Context(), l.admin, first.Number, two, first, false); err == nil {
		t.Error("who is not listed signs")
	}
	if err := Sign(t.Context(), l.admin, cluster.Number{Epoch: 1, Count: 9}, one, first,
		true); err == nil {
		t.Error("another version than the named one is signed")
	}
	if err := Sign(t.Context(), l.admin, first.Number, one, first, false); err != nil {
		t.Error(err)
	}
	if h := host().Head(); h == nil || h.Number != first.Number {
		t.Errorf("a signed version is refused: %v", h)
	}

	if _, err := l.loadBy(two, "add 2 allow ip from any to any\n", 0); err == nil ||
		!strings.Contains(err.Error(), "another administrator") {
		t.Errorf("who is not listed loads: %v", err)
	}
	if _, _, err := ChangeKeys(t.Context(), l.admin, two, []cluster.Key{KeyOf(two)},
		nil); err == nil {
		t.Error("who is not listed adds himself")
	}
	change(one, []cluster.Key{KeyOf(two)}, nil)
	trial, err := l.loadBy(two, "add 2 allow ip from any to any\n", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if h := host().Head(); h == nil || h.Number != trial.Number {
		t.Errorf("the trial of the second administrator: %v", h)
	}
	if _, _, err := Confirm(t.Context(), l.admin, "me", keyOf("three"), true); err == nil {
		t.Error("who is not listed confirms")
	}
	if _, _, err := Confirm(t.Context(), l.admin, "me", two, true); err != nil {
		t.Error(err)
	}
	confirmed := host().Head()

	// The version gets a signature that counts for hosts that join later.
	list, signed = change(one, nil, []cluster.Key{KeyOf(two)})
	if later := l.locked(list)(); !signed || later.Head() == nil {
		t.Errorf("a host that joins later has no rules: %v", signed)
	}
	if h := host().Head(); h == nil || h.Number != confirmed.Number ||
		host().Trust().Admins.Has(KeyOf(two)) {
		t.Errorf("after a removal: %+v", host().Trust())
	}
	if _, err := l.loadBy(two, "add 3 allow ip from any to any\n", 0); err == nil {
		t.Error("who was removed loads")
	}
	if _, _, err := ChangeKeys(t.Context(), l.admin, one, nil,
		[]cluster.Key{KeyOf(two)}); err == nil {
		t.Error("a key that is not listed is removed")
	}

	// The store is stolen: a version that no one signed is not signed by a change of the keys.
	thief := confirmed.Next(map[cluster.Scope]cluster.Digest{}, "thief", 0)
	l.put(cluster.HeadKey, &thief)
	if _, signed := change(one, []cluster.Key{KeyOf(two)}, nil); signed {
		t.Error("a version that no one signed is taken for signed")
	}
	if h := host().Head(); h.Number != confirmed.Number {
		t.Errorf("the thief's version is in force: %v", h)
	}
}
