package admin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// removed writes a removal record.
func (l *lab) removed(name string, serial byte, by Signer) {
	l.Helper()
	m := &cluster.RemovalRecord{Serials: []cluster.Serial{{serial}}}
	if err := m.Sign(cluster.RemovedTree+"node/"+name, by.Key); err != nil {
		l.Fatal(err)
	}
	l.put(cluster.RemovedTree+"node/"+name, m)
}

// TestKeysKeepRemovals: a host that joins after the key was removed that signed a removal believes
// the removal. What hosts did not believe gets no signature. The last one who can sign removals
// does not go.
func TestKeysKeepRemovals(t *testing.T) {
	l := newLab(t)
	one, two := signer("one"), signer("two")
	l.changeKeys(one, []cluster.Key{KeyOf(two.Key)}, nil)
	const many = 150 // more than one transaction signs
	for i := range many {
		l.removed(fmt.Sprint("gone", i), byte(i+1), two)
	}
	l.removed("attacker", 200, signer("attacker"))
	if _, _, err := ChangeKeys(t.Context(), l.admin, two, nil,
		[]cluster.Key{KeyOf(two.Key)}); err == nil || !strings.Contains(err.Error(),
		"150 removals") {
		t.Errorf("the one who signed them goes: %v", err)
	}
	list, _ := l.changeKeys(one, nil, []cluster.Key{KeyOf(two.Key)})
	if got := l.locked(list)().Revoked(); len(got) != many {
		t.Errorf("a host that joins later knows of %d removals, expected %d", len(got), many)
	}
}

// TestAdminKeepsRemovalRecords: an administrator gives the removal record another signature. It
// changes nothing else of it, and neither makes nor deletes one.
func TestAdminKeepsRemovalRecords(t *testing.T) {
	l := newLab(t)
	one := signer("one")
	l.removed("gone", 1, one)
	const key = cluster.RemovedTree + "node/gone"
	got, err := l.model.Read(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	had := got.Entries[0]
	get := func(k string) (store.Entry, bool) { return had, k == key }
	record := func(serials ...cluster.Serial) []byte {
		m := &cluster.RemovalRecord{Serials: serials}
		if err := m.Sign(key, signer("two").Key); err != nil {
			t.Fatal(err)
		}
		value, err := cluster.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	freed := cluster.RemovalRecord{Serials: []cluster.Serial{{1}}}
	if err := freed.SignCA(key, signer("two").Key); err != nil {
		t.Fatal(err)
	}
	withCA, err := cluster.Encode(&freed)
	if err != nil {
		t.Fatal(err)
	}
	at := []store.Compare{{Key: key, Revision: had.Revision}}
	same := []store.Entry{{Key: key, Value: record(cluster.Serial{1})}}
	for name, c := range map[string]struct {
		store.Txn
		may bool
	}{
		"another signature":   {store.Txn{Compare: at, Put: same}, true},
		"without the compare": {store.Txn{Put: same}, false},
		"another host": {store.Txn{Compare: at, Put: []store.Entry{{Key: key,
			Value: record(cluster.Serial{1}, cluster.Serial{2})}}}, false},
		"a signature of the CA": {store.Txn{Compare: at, Put: []store.Entry{{Key: key,
			Value: withCA}}}, false},
		"a new record": {store.Txn{Put: []store.Entry{{Key: key + "2",
			Value: record(cluster.Serial{2})}}}, false},
		"an empty one":       {store.Txn{Compare: at, Put: []store.Entry{{Key: key}}}, false},
		"a deletion":         {store.Txn{Compare: at, Delete: []string{key}}, false},
		"a table's record":   {store.Txn{Delete: []string{cluster.RemovedTree + "table/t"}}, true},
		"a version of rules": {store.Txn{Put: []store.Entry{{Key: cluster.HeadKey}}}, true},
	} {
		if err := cluster.AdminMayWrite(get, c.Txn); (err == nil) != c.may {
			t.Errorf("%s: %v", name, err)
		}
	}
}
