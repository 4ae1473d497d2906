package admin

import (
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// TestPutBack: whatever an attacker has written in their place, the version that an administrator's
// own host enforces and the keys that it knows are put back. This is done by the number of the
// version.
func TestPutBack(t *testing.T) {
	l := newLab(t)
	one, attacker := signer("one"), signer("attacker")
	list, _, err := ChangeKeys(t.Context(), l.admin, one, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	host := l.locked(list)
	good, err := l.loadBy(one, "add 1 allow tcp from any to any\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	one.Knows = host().Trust()
	evil := map[cluster.Scope]cluster.Digest{cluster.RoleScope("ra"): {1}}
	older := cluster.Head{Number: cluster.Number{Epoch: 1}}
	forged, err := list.Next(cluster.Serial{1}, []cluster.Key{KeyOf(attacker.Key)}, attacker.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		head cluster.Head
		keys []cluster.KeyList
	}{
		"a version":            {good.Next(evil, "me", 0), nil},
		"a trial":              {good.Next(evil, "me", time.Minute), nil},
		"the same number":      {older.Next(evil, "me", 0), nil},
		"a version, and keys":  {good.Next(evil, "me", 0), []cluster.KeyList{list, forged}},
		"keys of another list": {*good, []cluster.KeyList{forged}},
	} {
		if err := c.head.Sign(attacker.Key); err != nil {
			t.Fatal(err)
		}
		l.put(cluster.HeadKey, &c.head)
		if c.keys != nil {
			l.put(cluster.KeysKey, &cluster.AdminKeys{Lists: c.keys})
		}
		if d := host(); d.Head().Number != good.Number || len(d.Refused()) == 0 {
			t.Errorf("%s: in force %v, refused %v", name, d.Head(), d.Refused())
		}
		if err := Sign(t.Context(), l.admin, good.Number, one, good, false); err != nil {
			t.Errorf("%s: the previous version is not put back: %v", name, err)
		}
		if d := host(); d.Head().Number != good.Number || len(d.Refused()) > 0 {
			t.Errorf("%s: after that %v, refused %v", name, d.Head(), d.Refused())
		}
	}
	if _, err := l.model.Commit(t.Context(),
		store.Txn{Delete: []string{cluster.HeadKey}}); err != nil {
		t.Fatal(err)
	}
	if err := Sign(t.Context(), l.admin, good.Number, one, good, false); err != nil {
		t.Errorf("a version that is gone is not put back: %v", err)
	}
	if next, err := l.loadBy(one, "add 2 allow tcp from any to any\n", 0); err != nil ||
		len(next.Scopes) != 1 || host().Head().Number != next.Number {
		t.Errorf("the next load: %+v, %v", next, err)
	}
}
