package members_test

import (
	"bytes"
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

// TestRestoreWithoutIdentity: a backup of a store in which an attacker has replaced or deleted the
// identity of the cluster can be restored: the store host knows it without the store.
func TestRestoreWithoutIdentity(t *testing.T) {
	f := full(t)
	f.write(t, cluster.IdentityKey, []byte("garbage"))
	entries := (&locked{founded: f}).backup(t)
	restoreWithoutIdentity(t, f, entries)
	restoreWithoutIdentity(t, f, slices.DeleteFunc(entries, func(e store.Entry) bool {
		return e.Key == cluster.IdentityKey
	}))
}

func restoreWithoutIdentity(t *testing.T, f *founded, entries []store.Entry) {
	t.Helper()
	if _, err := members.PrepareRestore(entries, members.PriorState{}, nil); err == nil {
		t.Error("restored by a host that knows nothing of the cluster")
	}
	own := f.id
	own.Epoch = 0
	for known, want := range map[uint64]uint64{0: 2, 6: 7} {
		r, err := members.PrepareRestore(entries, members.PriorState{Epoch: known, Identity: own},
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Replaced) != 1 || !strings.Contains(r.Replaced[0], cluster.IdentityKey) {
			t.Errorf("replaced: %q", r.Replaced)
		}
		s := storetest.NewModel(time.Second)
		if err := r.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		e, _ := (&founded{model: s}).value(t, cluster.IdentityKey)
		doc, err := cluster.Decode[cluster.Identity](e.Value)
		if err != nil || doc.ID != f.id.ID || doc.Epoch != want || len(doc.Stores) != 1 {
			t.Errorf("the cluster is %+v, %v; want epoch %d", doc, err, want)
		}
	}
}

// TestRestoreOfALaterWeir: a document of a later Weir, or one of an attacker that looks like that,
// says what to do.
func TestRestoreOfALaterWeir(t *testing.T) {
	for _, key := range []string{cluster.IdentityKey, cluster.KeysKey, cluster.HeadKey,
		cluster.IssuedKey} {
		f := full(t)
		f.write(t, key, []byte(`{"version":2}`))
		_, err := members.PrepareRestore((&locked{founded: f}).backup(t),
			members.PriorState{Epoch: 1, Identity: f.id}, nil)
		if err == nil || !strings.Contains(err.Error(), key) ||
			!strings.Contains(err.Error(), "--from-copy") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestRestoreOfAnotherCluster: a backup is refused whose cluster the hosts would refuse.
func TestRestoreOfAnotherCluster(t *testing.T) {
	f := full(t)
	entries := (&locked{founded: f}).backup(t)
	other := f.id
	for _, refused := range []bool{false, true} {
		_, err := members.PrepareRestore(entries, members.PriorState{Epoch: 1, Identity: other},
			nil)
		if (err != nil) != refused {
			t.Errorf("cluster %v, with the backup of %v: %v", other.ID, f.id.ID, err)
		}
		other.ID[0] ^= 1
	}
}

// TestRestoreWithoutKeys: a backup of a store in which an attacker has replaced or deleted the keys
// of administrators can be restored, with the keys that the store host knows. So can one from
// before they changed. Without such a record, there are none, and no administrator signs what the
// attacker may have written.
func TestRestoreWithoutKeys(t *testing.T) {
	l := foundLocked(t)
	next, err := l.list.Next(l.id.ID, append(l.list.Keys, cluster.Key{1}), l.key)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := next.Next(l.id.ID, []cluster.Key{{2}}, l.attacker)
	if err != nil {
		t.Fatal(err)
	}
	own := cluster.KeyList{Count: 1, Keys: forged.Keys}
	lists := func(all ...cluster.KeyList) []byte {
		value, err := cluster.Encode(&cluster.AdminKeys{Lists: all})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	garbage := []byte("garbage")
	for name, c := range map[string]struct {
		keys   []byte
		pinned cluster.KeyList
		by     ed25519.PrivateKey
		want   []byte // nil: it is not restored; empty: without keys
	}{
		"garbage":                {garbage, l.list, l.key, lists(l.list)},
		"a list of an attacker":  {lists(own), l.list, l.key, lists(l.list)},
		"one that does not fit":  {lists(l.list, next, forged), l.list, l.key, lists(l.list, next)},
		"deleted":                {nil, l.list, l.key, lists(l.list)},
		"older":                  {lists(l.list), next, l.key, lists(l.list, next)},
		"without a record":       {garbage, cluster.KeyList{}, nil, []byte{}},
		"the same, to be signed": {garbage, cluster.KeyList{}, l.key, nil},
	} {
		l.write(t, cluster.KeysKey, c.keys)
		entries := slices.DeleteFunc(l.backup(t), func(e store.Entry) bool {
			return e.Key == cluster.KeysKey && c.keys == nil
		})
		r, err := members.PrepareRestore(entries, members.PriorState{Epoch: 1,
			Admins: c.pinned}, c.by)
		if err != nil || c.want == nil {
			if (err == nil) != (c.want != nil) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		s := storetest.NewModel(time.Second)
		if err := r.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		quiet := name == "deleted" || name == "older"
		if e, _ := (&founded{model: s}).value(t, cluster.KeysKey); !bytes.Equal(e.Value, c.want) ||
			quiet != (len(r.Replaced) == 0) {
			t.Errorf("%s: %q, keys %s, want %s", name, r.Replaced, e.Value, c.want)
		}
	}
}
