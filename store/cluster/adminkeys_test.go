package cluster

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
)

// TestRulesLock: with keys of admins, a head, a mark of a removed host and a new list of admins
// need a signature of one of them.
func TestRulesLock(t *testing.T) {
	a := newAuthority()
	a.trust.Admins = KeyList{Count: 1, Keys: []Key{public(a.admin)}}
	d := NewDesired("a", a.trust, nil)
	b := a.node(t, "b", "10.0.2.0/24")
	d.Apply([]store.Change{put(t, NodeTree+"b", b)})
	mark := &Removed{Serials: []Serial{b.Serial}}
	head := &Head{Number: Number{1, 1}, By: "x"}
	trial := head.Next(nil, "x", time.Minute)
	if err := trial.Sign(a.admin); err != nil {
		t.Fatal(err)
	}
	trial.Trial.Revert.By = "thief"
	if err := trial.Trial.Revert.Sign(keyOf("thief")); err != nil {
		t.Fatal(err)
	}
	lists := func(all ...KeyList) *AdminKeys { return &AdminKeys{Lists: all} }
	forged, err := a.trust.Admins.Next(Serial{1}, []Key{public(keyOf("thief"))}, keyOf("thief"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhereSigned, err := a.trust.Admins.Next(Serial{2}, []Key{public(keyOf("thief"))}, a.admin)
	if err != nil {
		t.Fatal(err)
	}
	first := KeyList{Count: 1, Keys: []Key{public(keyOf("thief"))}}
	for _, ch := range []store.Change{put(t, HeadKey, head), put(t, HeadKey, &trial),
		put(t, RemovedTree+"node/b", mark), put(t, KeysKey, lists(first)),
		put(t, KeysKey, lists(a.trust.Admins, forged)),
		put(t, KeysKey, lists(a.trust.Admins, elsewhereSigned))} {
		if e := d.Apply([]store.Change{ch}); len(e.Claims) != 1 || d.Head() != nil ||
			d.Node("b") == nil || !slices.Equal(d.Trust().Admins.Keys, a.trust.Admins.Keys) {
			t.Errorf("%s is accepted without a signature: %+v", ch.Key, e)
		}
	}
	if err := errors.Join(head.Sign(a.admin), mark.Sign(RemovedTree+"node/b",
		a.admin)); err != nil {
		t.Fatal(err)
	}
	if e := d.Apply([]store.Change{put(t, HeadKey, head)}); d.Head() == nil {
		t.Errorf("a signed head is refused: %+v", e)
	}
	elsewhere := put(t, RemovedTree+"node/c", mark)
	if e := d.Apply([]store.Change{elsewhere}); len(e.Claims) != 1 {
		t.Error("the mark of one host serves for another")
	}
	if e := d.Apply([]store.Change{put(t, RemovedTree+"node/b", mark)}); d.Node("b") != nil {
		t.Errorf("a signed mark is refused: %+v", e)
	}
}

// TestKeyLists: a list of keys needs a signature of the one before; a host that was away follows
// the chain; no list comes back, and a head that was signed too early counts when its key does.
func TestKeyLists(t *testing.T) {
	a := newAuthority()
	second, third := keyOf("second"), keyOf("third")
	next := func(l KeyList, by ed25519.PrivateKey, keys ...Key) KeyList {
		t.Helper()
		n, err := l.Next(Serial{1}, keys, by)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	l1 := next(KeyList{}, nil, public(a.admin))
	l2 := next(l1, a.admin, public(a.admin), public(second))
	l3 := next(l2, second, public(second))
	l4 := next(l3, second, public(third))
	a.trust.Admins = l1
	head := &Head{Number: Number{1, 1}, By: "x"}
	if err := head.Sign(third); err != nil {
		t.Fatal(err)
	}
	d := NewDesired("a", a.trust, nil)
	if e := d.Apply([]store.Change{put(t, HeadKey, head)}); len(e.Claims) != 1 {
		t.Errorf("signed by a key that is not listed yet: %+v", e)
	}
	e := d.Apply([]store.Change{put(t, KeysKey, &AdminKeys{Lists: []KeyList{l2, l3, l4}})})
	if got := d.Trust().Admins; !e.Trust || got.Count != 4 || !got.Has(public(third)) ||
		d.Head() == nil || e.Head == nil {
		t.Errorf("after the chain: %+v, %+v", got, e)
	}
	for _, old := range [][]KeyList{{l1}, {l1, l2}, {l1, l2, l3}} {
		e := d.Apply([]store.Change{put(t, KeysKey, &AdminKeys{Lists: old})})
		if len(e.Claims) != 1 || d.Trust().Admins.Count != 4 {
			t.Errorf("an old list: %+v", e)
		}
	}
	other := next(l3, second, public(a.admin))
	if e := d.Apply([]store.Change{put(t, KeysKey,
		&AdminKeys{Lists: []KeyList{l3, other}})}); len(e.Claims) != 1 {
		t.Errorf("another fourth list: %+v", e)
	}
	// the same version with another signature is the same version
	l5 := next(l4, third, public(third), public(second))
	again := *head
	if err := again.Sign(second); err != nil {
		t.Fatal(err)
	}
	e = d.Apply([]store.Change{put(t, KeysKey, &AdminKeys{Lists: []KeyList{l4, l5}}),
		put(t, HeadKey, &again)})
	if len(e.Claims) > 0 || e.Head != nil {
		t.Errorf("signed again: %+v", e)
	}
	changed := again
	changed.By = "thief"
	if err := changed.Sign(second); err != nil {
		t.Fatal(err)
	}
	if e := d.Apply([]store.Change{put(t, HeadKey, &changed)}); len(e.Claims) != 1 {
		t.Errorf("another version of that number: %+v", e)
	}
	// the end of the lock is signed, too, and final until the host joins again
	end := next(l5, third)
	d.Apply([]store.Change{put(t, KeysKey, &AdminKeys{Lists: []KeyList{l5, end, next(end, nil,
		public(keyOf("thief")))}})})
	if got := d.Trust().Admins; got.Locked() || got.Count != 6 {
		t.Errorf("after the end: %+v", got)
	}
	// without a lock a document brings none
	a.trust.Admins = KeyList{}
	free := NewDesired("a", a.trust, nil)
	free.Apply([]store.Change{put(t, KeysKey, &AdminKeys{Lists: []KeyList{l1}})})
	if free.Trust().Admins.Locked() {
		t.Error("the store locked a host that was not invited so")
	}
}
