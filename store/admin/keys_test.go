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

// signer is an administrator whose host knows nothing.
func signer(name string) Signer {
	seed := cluster.TextDigest(name)
	return Signer{Key: ed25519.NewKeyFromSeed(seed[:])}
}

func keyOf(name string) cluster.Key { return KeyOf(signer(name).Key) }

func (l *lab) loadBy(by Signer, text string, try time.Duration) (*cluster.Head, error) {
	return l.loadScope(cluster.All, by, text, try)
}

func (l *lab) loadScope(scope cluster.Scope, by Signer, text string, try time.Duration) (
	*cluster.Head, error) {
	h, _, err := Load(l.Context(), l.admin, Loading{Scope: scope, Name: "f", Text: text,
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

// changeKeys changes the list of administrators' keys.
func (l *lab) changeKeys(by Signer, add, remove []cluster.Key) (cluster.KeyList, bool) {
	l.Helper()
	list, signed, err := ChangeKeys(l.Context(), l.admin, by, add, remove)
	if err != nil {
		l.Fatal(err)
	}
	return list, signed
}

// TestKeys: the first list has who makes it; a locked host follows each change and every version
// that a listed administrator loads; others are refused before they write.
func TestKeys(t *testing.T) {
	l := newLab(t)
	one, two := signer("one"), signer("two")
	first, err := l.loadBy(Signer{}, "add 1 allow ip from any to any\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	list, signed := l.changeKeys(one, nil, nil)
	if signed || list.Count != 1 || !list.Has(KeyOf(one.Key)) || len(list.Keys) != 1 {
		t.Errorf("%+v, %v; the previous version was never signed", list, signed)
	}
	host := l.locked(list)
	if host().Head() != nil {
		t.Error("a locked host takes a version without a signature")
	}
	l.signFirst(first, one, two)
	if h := host().Head(); h == nil || h.Number != first.Number {
		t.Errorf("a signed version is refused: %v", h)
	}
	l.addSecond(one, two)
	trial, err := l.loadBy(two, "add 2 allow ip from any to any\n", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if h := host().Head(); h == nil || h.Number != trial.Number {
		t.Errorf("the trial of the second administrator: %v", h)
	}
	anyway := Without{All: true}
	if _, _, err := Confirm(t.Context(), l.admin, "me", signer("three"), anyway); err == nil {
		t.Error("who is not listed confirms")
	}
	if _, _, err := Confirm(t.Context(), l.admin, "me", two, Without{All: true}); err != nil {
		t.Error(err)
	}
	confirmed := host().Head()
	l.removeSecond(one, two)
	if h := host().Head(); h == nil || h.Number != confirmed.Number ||
		host().Trust().Admins.Has(KeyOf(two.Key)) {
		t.Errorf("after a removal: %+v", host().Trust())
	}

	// The store is stolen: a version that no one signed is not signed by a change of the keys.
	attacker := confirmed.Next(map[cluster.Scope]cluster.Digest{}, "attacker", 0)
	l.put(cluster.HeadKey, &attacker)
	if _, signed := l.changeKeys(one, []cluster.Key{KeyOf(two.Key)}, nil); signed {
		t.Error("a version that no one signed is taken for signed")
	}
	if h := host().Head(); h.Number != confirmed.Number {
		t.Errorf("the attacker's version is in force: %v", h)
	}
}

// signFirst signs a version by one, who is listed. What the signer's own host does not enforce is
// signed on request only.
func (l *lab) signFirst(first *cluster.Head, one, two Signer) {
	other := *first
	other.Scopes = map[cluster.Scope]cluster.Digest{cluster.All: {1}, "role:web": {2}}
	err := Sign(l.Context(), l.admin, first.Number, one, &other, false)
	if err == nil || !strings.Contains(err.Error(), "[all role:web]") {
		l.Errorf("other rules are signed: %v", err)
	}
	if err := Sign(l.Context(), l.admin, first.Number, one, nil, false); err == nil {
		l.Error("rules are signed on a host that has none")
	}
	if err := Sign(l.Context(), l.admin, first.Number, two, first, false); err == nil {
		l.Error("who is not listed signs")
	}
	if err := Sign(l.Context(), l.admin, cluster.Number{Epoch: 1, Count: 9}, one, first,
		true); err == nil {
		l.Error("another version than the named one is signed")
	}
	if err := Sign(l.Context(), l.admin, first.Number, one, first, false); err != nil {
		l.Error(err)
	}
}

// addSecond: two can do nothing until one, who is listed, adds two.
func (l *lab) addSecond(one, two Signer) {
	if _, err := l.loadBy(two, "add 2 allow ip from any to any\n", 0); err == nil ||
		!strings.Contains(err.Error(), "another administrator") {
		l.Errorf("who is not listed loads: %v", err)
	}
	if _, _, err := ChangeKeys(l.Context(), l.admin, two, []cluster.Key{KeyOf(two.Key)},
		nil); err == nil {
		l.Error("who is not listed adds himself")
	}
	l.changeKeys(one, []cluster.Key{KeyOf(two.Key)}, nil)
}

// removeSecond: one removes two, who loaded the version in force. It gets a signature that counts
// for hosts that join later.
func (l *lab) removeSecond(one, two Signer) {
	list, signed := l.changeKeys(one, nil, []cluster.Key{KeyOf(two.Key)})
	if later := l.locked(list)(); !signed || later.Head() == nil {
		l.Errorf("a host that joins later has no rules: %v", signed)
	}
	if _, err := l.loadBy(two, "add 3 allow ip from any to any\n", 0); err == nil {
		l.Error("who was removed loads")
	}
	if _, _, err := ChangeKeys(l.Context(), l.admin, one, nil,
		[]cluster.Key{KeyOf(two.Key)}); err == nil {
		l.Error("a key that is not listed is removed")
	}
}
