package cluster

import (
	"math"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestEpochOfAThief: one who writes into the store cannot have hosts refuse every later cluster.
// They do not believe an epoch that is far away and, if they demand signatures, none of which there
// is no signed version. The epoch that a restore begins is believed afterwards.
func TestEpochOfAThief(t *testing.T) {
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
			step1(1, 1, head(1+maxEpochs, "thief")),
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
