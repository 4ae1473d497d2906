package cluster

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
)

// TestLockedRemoval: with keys of admins no host goes without a signed removal record that is about
// its certificate. Neither does one of many, nor one with the removal record of an earlier host of
// its name, whatever the store has in its place.
func TestLockedRemoval(t *testing.T) {
	a := newAuthority()
	var all store.Snapshot
	for i := range 10 {
		name := fmt.Sprint(i)
		n := a.node(t, name)
		all.Entries = append(all.Entries, put(t, NodeTree+name, n).Entry,
			put(t, EndpointKey+name, endpointsOf(t, n, name, 1)).Entry)
	}
	serial, earlier := a.node(t, "3").Serial, a.node(t, "3")
	earlier.Serial = Serial{9}
	a.sign(t, earlier)
	record := func(by ed25519.PrivateKey, s Serial) store.Change {
		m := &RemovalRecord{Serials: []Serial{s}}
		if err := m.Sign(RemovedTree+"node/3", by); err != nil {
			t.Fatal(err)
		}
		return put(t, RemovedTree+"node/3", m)
	}
	replayed, signed := record(a.admin, earlier.Serial), record(a.admin, serial)
	overwritten := put(t, NodeTree+"3", earlier)
	garbage := store.Change{Entry: store.Entry{Key: NodeTree + "3"}}
	locked := KeyList{Count: 1, Keys: []Key{public(a.admin)}}
	for name, c := range map[string]struct {
		admins          KeyList
		before, records []store.Change
		goes            bool
	}{
		"without a lock":       {KeyList{}, nil, nil, true},
		"without a record":     {locked, nil, nil, false},
		"an attacker's record": {locked, nil, []store.Change{record(a.ca, serial)}, false},
		"an earlier record":    {locked, nil, []store.Change{replayed}, false},
		"an earlier host":      {locked, []store.Change{overwritten, replayed}, nil, false},
		"not a document":       {locked, []store.Change{garbage}, []store.Change{replayed}, false},
		"a signed removal":     {locked, nil, []store.Change{signed}, true},
	} {
		a.trust.Admins = c.admins
		d := NewDesired("x", a.trust, nil)
		g := store.NewGuarded(d.Guard(), all)
		d.Load(nil, all.Entries)
		d.Apply(g.Step(store.Batch{Revision: 11, Changes: c.before}))
		d.Apply(g.Step(store.Batch{Revision: 12, Changes: slices.Concat([]store.Change{
			removal(EndpointKey + "3"), removal(NodeTree + "3")}, c.records)}))
		if held := len(g.Held()); (d.Node("3") == nil) != c.goes || c.goes != (held == 0) {
			t.Errorf("%s: held %v, the host is %v", name, g.Held(), d.Node("3"))
		}
		d.Apply(g.Step(store.Batch{Revision: 13, Changes: []store.Change{signed}}))
		if d.Node("3") != nil || len(g.Held()) > 0 {
			t.Errorf("%s: held after a signed removal record: %v", name, g.Held())
		}
	}
}

// TestRulesLock: with keys of admins, a head, a removal record of a removed host and a new list of
// admins need a signature of one of them.
func TestRulesLock(t *testing.T) {
	a := newAuthority()
	a.trust.Admins = KeyList{Count: 1, Keys: []Key{public(a.admin)}}
	d := NewDesired("a", a.trust, nil)
	b := a.node(t, "b", "10.0.2.0/24")
	d.Apply([]store.Change{put(t, NodeTree+"b", b)})
	record := &RemovalRecord{Serials: []Serial{b.Serial}}
	head := &Head{Number: Number{1, 1}, By: "x"}
	trial := head.Next(nil, "x", time.Minute)
	if err := trial.Sign(a.admin); err != nil {
		t.Fatal(err)
	}
	trial.Trial.Revert.By = "attacker"
	if err := trial.Trial.Revert.Sign(keyOf("attacker")); err != nil {
		t.Fatal(err)
	}
	lists := func(all ...KeyList) *AdminKeys { return &AdminKeys{Lists: all} }
	foreign := keyOf("attacker")
	forged, err := a.trust.Admins.Next(Serial{1}, []Key{public(foreign)}, foreign)
	if err != nil {
		t.Fatal(err)
	}
	elsewhereSigned, err := a.trust.Admins.Next(Serial{2}, []Key{public(foreign)}, a.admin)
	if err != nil {
		t.Fatal(err)
	}
	first := KeyList{Count: 1, Keys: []Key{public(foreign)}}
	for _, ch := range []store.Change{put(t, HeadKey, head), put(t, HeadKey, &trial),
		put(t, RemovedTree+"node/b", record), put(t, KeysKey, lists(first)),
		put(t, KeysKey, lists(a.trust.Admins, forged)),
		put(t, KeysKey, lists(a.trust.Admins, elsewhereSigned))} {
		if e := d.Apply([]store.Change{ch}); len(e.Claims) != 1 || d.Head() != nil ||
			d.Node("b") == nil || !slices.Equal(d.Trust().Admins.Keys, a.trust.Admins.Keys) {
			t.Errorf("%s is accepted without a signature: %+v", ch.Key, e)
		}
	}
	if err := errors.Join(head.Sign(a.admin), record.Sign(RemovedTree+"node/b",
		a.admin)); err != nil {
		t.Fatal(err)
	}
	if e := d.Apply([]store.Change{put(t, HeadKey, head)}); d.Head() == nil {
		t.Errorf("a signed head is refused: %+v", e)
	}
	elsewhere := put(t, RemovedTree+"node/c", record)
	if e := d.Apply([]store.Change{elsewhere}); len(e.Claims) != 1 {
		t.Error("the removal record of one host serves for another")
	}
	if e := d.Apply([]store.Change{put(t, RemovedTree+"node/b", record)}); d.Node("b") != nil {
		t.Errorf("a signed removal record is refused: %+v", e)
	}
}

// TestKeyLists: a list of keys needs a signature of the one before, and a host that was away
// follows the chain. No list comes back, and a head that was signed too early counts when its key
// does.
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
	changed.By = "attacker"
	if err := changed.Sign(second); err != nil {
		t.Fatal(err)
	}
	if e := d.Apply([]store.Change{put(t, HeadKey, &changed)}); len(e.Claims) != 1 {
		t.Errorf("another version of that number: %+v", e)
	}
	// the end of the lock is signed, too, and final until the host joins again
	end := next(l5, third)
	d.Apply([]store.Change{put(t, KeysKey, &AdminKeys{Lists: []KeyList{l5, end, next(end, nil,
		public(keyOf("attacker")))}})})
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

// TestRemovalBeforeAnotherList: a host was away while an administrator removed a host, and then the
// key of that administrator was removed. The host believes the removal when it follows the lists,
// whichever list the key was in; afterwards the key removes no one.
func TestRemovalBeforeAnotherList(t *testing.T) {
	a := newAuthority()
	second := keyOf("second")
	one := KeyList{Count: 1, Keys: []Key{public(a.admin)}}
	next := func(l KeyList, by ed25519.PrivateKey, keys ...ed25519.PrivateKey) KeyList {
		var all []Key
		for _, k := range keys {
			all = append(all, public(k))
		}
		l, err := l.Next(a.trust.Cluster, all, by)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	third := keyOf("third")
	two := next(one, a.admin, a.admin, second, third)
	three := next(two, third, third)
	b, c := a.node(t, "b"), a.node(t, "c")
	record := func(n *Node, by ed25519.PrivateKey) store.Change {
		m := &RemovalRecord{Serials: []Serial{n.Serial}}
		if err := m.Sign(RemovedTree+"node/"+n.Name, by); err != nil {
			t.Fatal(err)
		}
		return put(t, RemovedTree+"node/"+n.Name, m)
	}
	lists := put(t, KeysKey, &AdminKeys{Lists: []KeyList{one, two, three}})
	for name, by := range map[string]ed25519.PrivateKey{"first": a.admin, "second": second} {
		a.trust.Admins = one
		d := NewDesired("x", a.trust, nil)
		all := store.Snapshot{Entries: []store.Entry{put(t, NodeTree+"b", b).Entry,
			put(t, NodeTree+"c", c).Entry}}
		g := store.NewGuarded(d.Guard(), all)
		d.Load(nil, all.Entries)
		d.Apply(g.Step(store.Batch{Revision: 2, Changes: []store.Change{lists,
			removal(NodeTree + "b"), record(b, by)}}))
		if d.Node("b") != nil || !slices.Equal(d.Revoked(), []Serial{b.Serial}) {
			t.Errorf("%s: the host that was removed: %v, removed %v", name, d.Node("b"),
				d.Revoked())
		}
		d.Apply(g.Step(store.Batch{Revision: 3, Changes: []store.Change{put(t, NodeTree+"b", b),
			record(c, by), removal(NodeTree + "c")}}))
		if d.Node("b") != nil {
			t.Errorf("%s: the removed host is back", name)
		}
		if d.Node("c") == nil {
			t.Errorf("%s: a key that was removed removes a host", name)
		}
	}
}
