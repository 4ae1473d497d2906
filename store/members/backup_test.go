package members_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// restore writes a backup into a store and returns the epoch that begins.
func restore(t *testing.T, s store.Store, entries []store.Entry, before members.PriorState,
	admin ed25519.PrivateKey) (uint64, error) {
	r, err := members.PrepareRestore(entries, before, admin)
	if err != nil {
		return 0, err
	}
	return r.Epoch, r.Write(t.Context(), s)
}

// TestBackup: what is restored is what was there, in a new epoch, with a version of the rules that
// is newer than the one before. A damaged backup is refused, and a store that is not empty.
func TestBackup(t *testing.T) {
	f := full(t)
	for i := range 300 { // several transactions
		if _, err := f.model.Commit(t.Context(), put(cluster.PodsTree+"bob/"+string(rune('a'+i)),
			strings.Repeat("x", 9000))); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if _, _, err := members.Backup(t.Context(), f.model, &file); err != nil {
		t.Fatal(err)
	}
	entries, err := members.ReadBackup(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restore(t, f.model, entries, members.PriorState{},
		nil); err == nil {
		t.Error("restored into a store that is not empty")
	}
	for _, test := range []struct{ had, want uint64 }{{0, 2}, {6, 7}} {
		s := storetest.NewModel(time.Second)
		epoch, err := restore(t, s, entries,
			members.PriorState{Epoch: test.had}, nil)
		if err != nil || epoch != test.want {
			t.Fatalf("epoch %d, %v", epoch, err)
		}
		before, err := f.model.Read(t.Context(), cluster.Root, 0)
		if err != nil {
			t.Fatal(err)
		}
		after, err := s.Read(t.Context(), cluster.Root, 0)
		if err != nil {
			t.Fatal(err)
		}
		var differ []string
		for _, ch := range store.NewCopy(before).Diff(store.NewCopy(after)) {
			if strings.HasPrefix(ch.Key, cluster.InviteTree) && ch.Deleted {
				continue // a token is not valid again
			}
			differ = append(differ, ch.Key)
		}
		if got := strings.Join(differ, " "); got != cluster.IdentityKey+" "+cluster.HeadKey {
			t.Errorf("changed: %s", got)
		}
		e, _ := (&founded{model: s}).value(t, cluster.HeadKey)
		head, err := cluster.Decode[cluster.Head](e.Value)
		if err != nil || head.Number != (cluster.Number{Epoch: test.want, Count: 1}) {
			t.Errorf("the version is %v, %v", head.Number, err)
		}
	}
	text := file.Bytes()
	for name, bad := range map[string][]byte{
		"nothing":         nil,
		"half":            text[:len(text)/2],
		"without its end": text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1],
		"another value":   bytes.Replace(text, []byte("eHh4"), []byte("eHh5"), 1),
		"more":            append(bytes.Clone(text), '\n', '{'),
	} {
		if _, err := members.ReadBackup(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

// TestBackupOfAStolenStore: what an attacker has written into the store keeps neither a backup from
// being restored, nor the copy of a host. It is left out, and named.
func TestBackupOfAStolenStore(t *testing.T) {
	f := full(t)
	var clean bytes.Buffer
	want, _, err := members.Backup(t.Context(), f.model, &clean)
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	bad := []store.Entry{
		{Key: cluster.PodsTree + "b/" + "\xfe"},
		{Key: cluster.PodsTree + "b/" + "\xff"}, // the same in JSON
		{Key: cluster.PodsTree + "b/"},
		{Key: cluster.TableTree + "t/00", Value: make([]byte, 3<<19)}, // as much as etcd takes
	}
	garbage := store.Entry{Key: cluster.RemovedTree + "node/x", Value: []byte("garbage")}
	all.Entries = append(all.Entries, append(bad, garbage)...)
	var file bytes.Buffer
	n, leftOut, err := members.Backup(t.Context(), stolen{f.model, all}, &file)
	if err != nil || n != want+1 || len(leftOut) != len(bad) {
		t.Fatalf("%d entries, want %d, without %q: %v", n, want+1, leftOut, err)
	}
	entries, err := members.ReadBackup(&file)
	if err != nil {
		t.Fatal(err)
	}
	for what, entries := range map[string][]store.Entry{"the backup": entries,
		"the copy of a host": all.Entries} {
		if _, err := restore(t, storetest.NewModel(time.Second), entries, members.PriorState{},
			nil); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRestoreWithoutIssued: a backup of a store in which an attacker has replaced the list of the
// certificates in force can be restored. None is in force then.
func TestRestoreWithoutIssued(t *testing.T) {
	f := found(t)
	f.write(t, cluster.IssuedKey, []byte("garbage"))
	all, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.NewModel(time.Second)
	if _, err := restore(t, s, all.Entries, members.PriorState{}, nil); err != nil {
		t.Fatal(err)
	}
	e, _ := (&founded{model: s}).value(t, cluster.IssuedKey)
	if doc, err := cluster.Decode[cluster.Issued](e.Value); err != nil ||
		len(doc.Certificates) > 0 {
		t.Errorf("in force are %v, %v", doc.Certificates, err)
	}
}

// stolen is a store with content that no transaction writes.
type stolen struct {
	store.Store
	all store.Snapshot
}

func (s stolen) Read(context.Context, string, int64) (store.Snapshot, error) { return s.all, nil }
