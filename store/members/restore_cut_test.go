package members_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// cutOff is a store that makes some transactions, and then answers no more.
type cutOff struct {
	*storetest.Model
	commits int
}

// Commit implements store.Store.
func (c *cutOff) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if c.commits == 0 {
		return 0, store.ErrUnavailable
	}
	c.commits--
	return c.Model.Commit(ctx, t)
}

// large returns a cluster whose backup takes several transactions, and the backup.
func large(t *testing.T) (*locked, []store.Entry) {
	t.Helper()
	l := foundLocked(t)
	l.join(t, "gone")
	gone, _ := l.node(t, "gone")
	for i := range 300 {
		l.write(t, cluster.PodsTree+"b/"+string(rune('a'+i)), nil)
	}
	l.endedOn(gone.Serial)
	return l, l.backup(t)
}

// endedOn has the store host know a serial number as revoked.
func (l *locked) endedOn(s cluster.Serial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[s] = true
}

// prepared prepares the backup as each run of the command does.
func (l *locked) prepared(t *testing.T, entries []store.Entry) *members.Restoration {
	t.Helper()
	before := members.PriorState{Epoch: 1, Admins: l.list, Identity: l.id}
	for s := range l.ended {
		before.RevokedHosts = append(before.RevokedHosts, s)
	}
	r, err := members.PrepareRestore(entries, before, l.key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRestoreContinues: a restore that was cut off after any of its transactions is continued by
// the next run. Until it is whole no cluster is founded there, and no other backup is added to it.
func TestRestoreContinues(t *testing.T) {
	l, entries := large(t)
	whole := storetest.NewModel(time.Second)
	if err := l.prepared(t, entries).Write(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	want := read(t, whole)
	other := slices.DeleteFunc(slices.Clone(entries), func(e store.Entry) bool {
		return e.Key == cluster.PodsTree+"b/a"
	})
	admin, err := l.admin.Peer()
	if err != nil {
		t.Fatal(err)
	}
	for commits, all := 0, false; !all; commits++ {
		s := &cutOff{storetest.NewModel(time.Second), commits}
		err := l.prepared(t, entries).Write(t.Context(), s)
		all = err == nil
		if !all && !strings.Contains(err.Error(), "run the same command again") {
			t.Errorf("cut off after %d transactions: %v", commits, err)
		}
		before := read(t, s.Model)
		if commits > 0 {
			l.refused(t, s.Model, other)
			if err := members.CreateCluster(t.Context(), s.Model, l.id, admin); err == nil ||
				!all && !strings.Contains(err.Error(), "etcdctl del --prefix "+cluster.Root) {
				t.Errorf("a cluster in the store of a restore: %v", err)
			}
		}
		if n := differences(t, s.Model, before); n > 0 {
			t.Errorf("after %d transactions refused commands change %d keys", commits, n)
		}
		if err := l.prepared(t, entries).Write(t.Context(), s.Model); err != nil {
			t.Errorf("continued after %d transactions: %v", commits, err)
		}
		if n := differences(t, s.Model, want); n > 0 {
			t.Errorf("continued after %d transactions: %d keys differ", commits, n)
		}
	}
}

// refused restores another backup into a store that has something.
func (l *locked) refused(t *testing.T, s store.Store, entries []store.Entry) {
	t.Helper()
	err := l.prepared(t, entries).Write(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "etcdctl del --prefix "+cluster.Root) {
		t.Errorf("another backup: %v", err)
	}
}

// TestRestoreIntoACluster: a restore writes nothing into a store with a cluster, even if all that
// is there is of the backup, or if the cluster is founded meanwhile.
func TestRestoreIntoACluster(t *testing.T) {
	l, entries := large(t)
	s := storetest.NewModel(time.Second)
	if err := l.prepared(t, entries).Write(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.Txn{
		Delete: []string{cluster.PodsTree + "b/a"}}); err != nil {
		t.Fatal(err)
	}
	before := read(t, s)
	l.refused(t, s, entries)
	if n := differences(t, s, before); n > 0 {
		t.Errorf("it has changed %d keys", n)
	}
	founded := &foundedMeanwhile{storetest.NewModel(time.Second)}
	if err := l.prepared(t, entries).Write(t.Context(), founded); err == nil {
		t.Error("it is written into a cluster that was founded meanwhile")
	}
	if n := len(read(t, founded.Model).Entries); n != 1 {
		t.Errorf("the new cluster has %d entries", n)
	}
}

// foundedMeanwhile is an empty store in which someone founds a cluster after it was read.
type foundedMeanwhile struct{ *storetest.Model }

// Read implements store.Store.
func (f foundedMeanwhile) Read(ctx context.Context, name string, revision int64) (store.Snapshot,
	error) {
	s, err := f.Model.Read(ctx, name, revision)
	if err == nil {
		_, err = f.Model.Commit(ctx, store.Txn{Put: []store.Entry{{Key: cluster.IdentityKey}}})
	}
	return s, err
}

// differences counts the keys in which a store differs from what it should have.
func differences(t *testing.T, s store.Store, want store.Snapshot) int {
	t.Helper()
	return len(store.NewCopy(want).Diff(store.NewCopy(read(t, s))))
}

// read returns all that a store has.
func read(t *testing.T, s store.Store) store.Snapshot {
	t.Helper()
	all, err := s.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
