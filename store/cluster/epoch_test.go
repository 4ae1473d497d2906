package cluster

import (
	"math"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestEpochOfAnAttacker: one who writes into the store cannot have hosts refuse every later
// cluster. They do not believe an epoch that is far away and, if they demand signatures, none of
// which there is no signed version. The epoch that a restore begins is believed afterwards.
func TestEpochOfAnAttacker(t *testing.T) {
	a := newAuthority()
	identity := func(epoch uint64) store.Change {
		return put(t, IdentityKey, &Identity{ID: a.trust.Cluster, Epoch: epoch})
	}
	head := func(epoch uint64, by string) store.Change {
		h := &Head{Number: Number{Epoch: epoch, Count: 1}, By: "a"}
		if by != "" {
			if err := h.Sign(keyOf(by)); err != nil {
				t.Fatal(err)
			}
		}
		return put(t, HeadKey, h)
	}
	locked := KeyList{Count: 1, Keys: []Key{public(a.admin)}}
	type step struct {
		changes []store.Change
		refused int
		epoch   uint64 // believed afterwards
	}
	step1 := func(refused int, epoch uint64, changes ...store.Change) step {
		return step{changes, refused, epoch}
	}
	for name, c := range map[string]struct {
		admins KeyList
		steps  []step
	}{
		"without signatures": {KeyList{}, []step{
			step1(1, 1, identity(math.MaxUint64)),
			step1(2, 1, head(math.MaxUint64, "")),
			step1(0, 1, identity(1), head(1, "")),
			step1(0, 2, identity(2), head(2, "")),
			step1(0, 2+maxEpochs, identity(2+maxEpochs)),
			step1(1, 2+maxEpochs, identity(3+2*maxEpochs)),
			step1(0, 3+maxEpochs, identity(3+maxEpochs), head(3+maxEpochs, "")),
		}},
		"with signatures": {locked, []step{
			step1(0, 1, identity(1), head(1, "admin")),
			step1(1, 1, identity(math.MaxUint64)),
			step1(0, 1, identity(1+maxEpochs)), // named, and not believed
			step1(1, 1, head(1+maxEpochs, "")),
			step1(1, 1, head(1+maxEpochs, "attacker")),
			step1(0, 2, identity(2), head(2, "admin")),
			step1(1, 2, identity(math.MaxUint64)), // with the key of an administrator
			step1(2, 2, head(math.MaxUint64, "admin")),
			step1(0, 3, identity(3), head(3, "admin")),
			step1(1, 3, identity(2)),
		}},
	} {
		a.trust.Admins = c.admins
		d := NewDesired("a", a.trust, nil)
		for i, s := range c.steps {
			d.Apply(s.changes)
			if got := d.Trust().Epoch; got != s.epoch || len(d.Refused()) != s.refused {
				t.Errorf("%s, step %d: epoch %d, refused %v", name, i, got, d.Refused())
			}
		}
	}
}

// TestEnterEpoch: an administrator has a host without signed rules enter the epoch of the store
// that is the right one. An attacker may have moved the host on, or the store may be too far away.
// The head of that epoch counts, and from then on no earlier one.
func TestEnterEpoch(t *testing.T) {
	a := newAuthority()
	identity := func(epoch uint64) store.Change {
		return put(t, IdentityKey, &Identity{ID: a.trust.Cluster, Epoch: epoch})
	}
	head := func(epoch, count uint64) store.Change {
		return put(t, HeadKey, &Head{Number: Number{Epoch: epoch, Count: count}, By: "a"})
	}
	d := NewDesired("a", a.trust, nil)
	d.Apply([]store.Change{identity(1 + maxEpochs), head(1+maxEpochs, 7)})
	d.Apply([]store.Change{identity(1 + 2*maxEpochs)})
	if d.Trust().Epoch != 1+2*maxEpochs || d.ImplausibleEpoch() != 0 {
		t.Fatalf("epoch %d, implausible %d", d.Trust().Epoch, d.ImplausibleEpoch())
	}
	if !d.AcceptEpoch(2) || d.Head().Number.Count != 7 {
		t.Errorf("the head is %v", d.Head())
	}
	is := func(number Number, refused int, changes ...store.Change) {
		t.Helper()
		d.Apply(changes)
		if d.Head().Number != number || len(d.Refused()) != refused {
			t.Errorf("%v, refused %v; expected %v", d.Head().Number, d.Refused(), number)
		}
	}
	is(Number{2, 3}, 0, identity(2), head(2, 3))
	is(Number{2, 3}, 2, identity(1), head(2, 2))
	is(Number{2, 3}, 2, identity(3+maxEpochs), head(3+maxEpochs, 1))
	if d.ImplausibleEpoch() != 3+maxEpochs || !d.AcceptEpoch(d.ImplausibleEpoch()) {
		t.Errorf("implausible %d", d.ImplausibleEpoch())
	}
	is(Number{3 + maxEpochs, 1}, 0, identity(3+maxEpochs), head(3+maxEpochs, 1))

	a.trust.Admins = KeyList{Count: 1, Keys: []Key{public(a.admin)}}
	d = NewDesired("a", a.trust, nil)
	d.Apply([]store.Change{identity(2 + maxEpochs)})
	if d.AcceptEpoch(d.ImplausibleEpoch()) || d.AcceptEpoch(1) || d.Trust().Epoch != 1 {
		t.Errorf("with signatures: epoch %d", d.Trust().Epoch)
	}
}

// TestSeenAndLost: a host that knows the number of a version, and whose disk has lost that version
// in a power cut, takes it from the store, and no older one.
func TestSeenAndLost(t *testing.T) {
	a := newAuthority()
	at := func(count uint64, by string) store.Change {
		return put(t, HeadKey, &Head{Number: Number{Epoch: 1, Count: count}, By: by})
	}
	old, next := at(6, "x"), at(7, "x")
	confirmed, err := Decode[Head](old.Value)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDesired("a", a.trust, nil)
	d.Load(nil, []store.Entry{old.Entry})
	d.SetSeen(Number{Epoch: 1, Count: 7}, &confirmed)
	if e := d.Apply([]store.Change{at(6, "y")}); e.Head != nil {
		t.Error("an older version is taken")
	}
	if e := d.Apply([]store.Change{next}); e.Head == nil || len(e.Claims) > 0 {
		t.Errorf("the version that was seen before the cut is refused: %+v", e)
	}
	if e := d.Apply([]store.Change{at(7, "y")}); e.Head != nil {
		t.Error("another version of that number is taken")
	}
}
