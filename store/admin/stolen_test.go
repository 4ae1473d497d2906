package admin

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// honestText are the rules that are in force before the store is stolen.
const honestText = "add 1 deny ip from any to any\n"

// attackerHead commits other rules and returns a version of them, which an attacker in the store
// made.
func (l *lab) attackerHead(after *cluster.Head) cluster.Head {
	l.Helper()
	evil, parts, err := cluster.EncodeText("add 3 allow ip from any to any\n")
	if err == nil {
		_, err = l.model.Commit(l.Context(), store.Txn{Put: parts})
	}
	if err != nil {
		l.Fatal(err)
	}
	return after.Next(map[cluster.Scope]cluster.Digest{cluster.All: evil}, "attacker", 0)
}

// TestStolenStoreGetsNoSignature: an administrator signs nothing that builds on what his own host
// refuses: rules or keys that an attacker wrote, or versions that the store withholds.
func TestStolenStoreGetsNoSignature(t *testing.T) {
	l := newLab(t)
	one := signer("one")
	l.changeKeys(one, nil, nil)
	old, err := l.loadBy(one, "add 2 allow ip from any to any\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	head, err := l.loadBy(one, honestText, 0)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := Keys(t.Context(), l.admin)
	if err != nil {
		t.Fatal(err)
	}
	host := l.locked(keys)
	one.Knows = host().Trust()

	attacker := l.attackerHead(head)
	trial := head.Next(attacker.Scopes, "attacker", time.Minute)
	for _, key := range []Signer{{}, signer("attacker")} {
		for name, h := range map[string]*cluster.Head{"a version": &attacker, "a trial": &trial} {
			if key.Key != nil {
				if err := h.Sign(key.Key); err != nil {
					t.Fatal(err)
				}
			}
			l.put(cluster.HeadKey, h)
			l.refuses(name, one)
		}
	}
	l.put(cluster.HeadKey, old)
	l.refuses("an old version", one)
	epoch := cluster.Identity{ID: cluster.Serial{1}, Epoch: 2}
	l.put(cluster.IdentityKey, &epoch)
	if _, err := l.model.Commit(t.Context(),
		store.Txn{Delete: []string{cluster.HeadKey}}); err != nil {
		t.Fatal(err)
	}
	l.refuses("no version", one)
	l.put(cluster.HeadKey, head)
	l.forgeKeys(one, keys, head, attacker)
	if h := host().Head(); h == nil || h.Scopes[cluster.All] != head.Scopes[cluster.All] {
		t.Errorf("in force: %+v", h)
	}
}

// forgeKeys writes lists of keys that an attacker made, under the version in force and under one of
// the attacker's. The administrator signs neither lists nor rules that build on them. Rules that
// build on the version in force do not depend on the list: hosts keep the one that they know.
func (l *lab) forgeKeys(by Signer, keys cluster.KeyList, head *cluster.Head,
	attacker cluster.Head) {
	forged := keys
	forged.Keys = []cluster.Key{KeyOf(by.Key), keyOf("attacker")}
	slices.SortFunc(forged.Keys, func(a, b cluster.Key) int { return bytes.Compare(a[:], b[:]) })
	next, err := keys.Next(cluster.Serial{1}, forged.Keys, signer("attacker").Key)
	if err != nil {
		l.Fatal(err)
	}
	for name, lists := range map[string][]cluster.KeyList{"another list": {forged},
		"a list of the attacker's": {keys, next}} {
		l.put(cluster.KeysKey, &cluster.AdminKeys{Lists: lists})
		if made, _, err := ChangeKeys(l.Context(), l.admin, by, []cluster.Key{keyOf("two")},
			nil); !errors.Is(err, cluster.ErrSignature) {
			l.Errorf("%s: signed as %+v, %v", name, made, err)
		}
		if _, err := l.loadBy(by, honestText, 0); err != nil {
			l.Errorf("%s: rules of before are refused: %v", name, err)
		}
		attacker.Number.Count += 10
		if err := attacker.Sign(signer("attacker").Key); err != nil {
			l.Fatal(err)
		}
		l.put(cluster.HeadKey, &attacker)
		l.refuses(name, by)
		l.put(cluster.HeadKey, head)
	}
}

// refuses says that an administrator signs neither rules of another scope nor a confirmation.
func (l *lab) refuses(what string, by Signer) {
	l.Helper()
	before, _ := l.model.Read(l.Context(), cluster.HeadKey, 0)
	_, err := l.loadScope(cluster.RoleScope("ra"), by, "add 9 deny ip from any to any\n", 0)
	if err == nil {
		l.Errorf("%s: it is signed with rules of another scope", what)
	}
	if _, _, err := Confirm(l.Context(), l.admin, "me", by, Without{All: true}); err == nil {
		l.Errorf("%s: it is confirmed", what)
	}
	after, _ := l.model.Read(l.Context(), cluster.HeadKey, 0)
	if after.Revision != before.Revision {
		l.Errorf("%s: the store has changed", what)
	}
}
