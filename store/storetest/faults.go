package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
)

// testCompacted: a watch that needs changes which are gone ends, and one that does not gets all.
func testCompacted(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	revisions, content := history(t, s)
	at := revisions[6]
	c.Compact(t, at)
	expectError(t, "watch", watch(t, s, "h/", revisions[2]).failure(t), store.ErrCompacted)
	_, err := s.Read(limited(t), "h/", revisions[2])
	expectError(t, "read", err, store.ErrCompacted)

	have := store.NewCopy(read(t, s, "h/", at))
	w := watch(t, s, "h/", at)
	for _, revision := range revisions[7:] {
		have.Apply(w.next(t))
		if got := showEntries(have.Snapshot().Entries); got != content[revision] {
			t.Fatalf("at %d: %s, expected %s", revision, got, content[revision])
		}
	}
}

// testCompactedDelete: a deletion at the very revision up to which the store was compacted is not
// lost to a watch that begins there: it arrives, or the watch ends.
func testCompactedDelete(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	before := commitPut(t, s, put("h/a", "1"))
	deleted := commit(t, s, store.Txn{Delete: []string{"h/a"}})
	commitPut(t, s, put("h/b", "1"))
	c.Compact(t, deleted)
	for b, err := range s.Watch(limited(t), "h/", before) {
		if errors.Is(err, store.ErrCompacted) || err == nil && b.Revision == deleted &&
			len(b.Changes) == 1 && b.Changes[0].Deleted {
			return
		}
		if err != nil || len(b.Changes) > 0 {
			t.Fatalf("the deletion at %d is lost: %d: %s, %v", deleted, b.Revision,
				show(b.Changes), err)
		}
	}
	t.Fatal("the watch is silent")
}

// following is a Follower that runs in the background.
type following struct {
	copy     *store.Guarded
	applied  atomic.Int64  // revision
	failures chan error    // every one
	again    chan struct{} // each value lets the follower try again; closed: always
	stop     func()        // and waits: then copy is the test's
}

var unguarded = store.Guard{
	Kind:  func(string) string { return "" },
	Meant: func(*store.Copy, string) bool { return true },
}

func follow(t *testing.T, s store.Store, name string, guard store.Guard) *following {
	f := &following{copy: store.NewGuarded(guard, store.Snapshot{}),
		failures: make(chan error, 10000), again: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	applied := map[string]string{} // what the changes alone lead to
	follower := &store.Follower{Store: s, Name: name, Copy: f.copy,
		Changed: func(changes []store.Change) {
			for _, ch := range changes {
				if _, ok := applied[ch.Key]; ch.Deleted && !ok {
					t.Errorf("%s was deleted without being there", ch.Key)
				}
				if applied[ch.Key] = string(ch.Value); ch.Deleted {
					delete(applied, ch.Key)
				}
			}
			if len(applied) != len(f.copy.Enforced().Entries) {
				t.Errorf("the changes lead to %d keys, the copy has %d", len(applied),
					len(f.copy.Enforced().Entries))
			}
			f.applied.Store(f.copy.Stored().Revision)
		},
		Wait: func(ctx context.Context, failures int) error {
			select {
			case <-f.again:
				time.Sleep(store.Pause(failures, 0.1))
			case <-ctx.Done():
			}
			return ctx.Err()
		},
		Failed: func(err error) { f.failures <- err },
	}
	go func() {
		defer close(done)
		follower.Run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(f.stop)
	return f
}

// expect wants the stored copy to be exactly the snapshot, and the enforced one to have its values.
func (f *following) expect(t *testing.T, want store.Snapshot) {
	t.Helper()
	got := showEntries(f.copy.Stored().Snapshot().Entries)
	if want := showEntries(want.Entries); got != want {
		t.Errorf("followed to\n%s\nexpected\n%s", got, want)
	}
	if differ := store.NewCopy(f.copy.Enforced()).Diff(store.NewCopy(want)); len(differ) > 0 {
		t.Errorf("enforced values differ: %s", show(differ))
	}
}

// reaches waits until the follower has applied a revision.
func (f *following) reaches(t *testing.T, revision int64) {
	t.Helper()
	for late := time.Now().Add(testTimeout); f.applied.Load() < revision; {
		if time.Now().After(late) {
			t.Fatalf("the follower is at %d, not at %d", f.applied.Load(), revision)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fails waits for an error of the follower.
func (f *following) fails(t *testing.T, want error) {
	t.Helper()
	for late := time.After(testTimeout); ; {
		select {
		case err := <-f.failures:
			if errors.Is(err, want) {
				return
			}
		case <-late:
			t.Fatalf("the follower does not fail with: %v", want)
		}
	}
}

// testFollowCompacted: a follower that was away while the store was compacted gets the difference.
func testFollowCompacted(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	f := follow(t, s, "h/", unguarded)
	f.reaches(t, commitPut(t, s, put("h/kept", "1"), put("h/deleted", "1")))
	c.Partition(t, true)
	f.fails(t, store.ErrUnavailable)
	c.Partition(t, false)
	commit(t, s, store.Txn{Delete: []string{"h/deleted"}})
	last := commitPut(t, s, put("h/new", "1"))
	c.Compact(t, last)
	close(f.again)
	f.reaches(t, last)
	f.stop()
	if got := showEntries(f.copy.Enforced().Entries); strings.Contains(got,
		"deleted") || len(f.copy.Enforced().Entries) != 2 {
		t.Errorf("followed to %s", got)
	}
}

// testRestart: what was committed is there after a kill, and a follower misses nothing.
func testRestart(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	f := follow(t, s, "h/", unguarded)
	close(f.again)
	revisions, content := history(t, s)
	last := revisions[len(revisions)-1]
	f.reaches(t, last)
	c.Restart(t)
	if got := showEntries(read(t, s, "h/", 0).Entries); got != content[last] {
		t.Errorf("after the restart: %s, expected %s", got, content[last])
	}
	later, _ := history(t, s)
	if later[0] <= last {
		t.Errorf("revision %d after %d", later[0], last)
	}
	last = later[len(later)-1]
	f.reaches(t, last)
	f.stop()
	f.expect(t, read(t, s, "h/", 0))
}

// testQuiet: a watch on a subtree where nothing changes does not end, and continues.
func testQuiet(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	first := commitPut(t, s, put("h/a", "1"))
	w := watch(t, s, "h/", first)
	other := watch(t, s, "other/", first)
	for begin := time.Now(); time.Since(begin) < 5*c.Silence()/2; {
		commitPut(t, s, put("other/a", "1"))
		time.Sleep(c.Silence() / 10)
	}
	last := commitPut(t, s, put("h/a", "2"))
	if b := w.next(t); b.Revision != last {
		t.Errorf("revision %d, expected %d", b.Revision, last)
	}
	other.next(t)
}

// testStill: a watch of the newest revision does not end while nothing at all changes.
func testStill(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	first := commitPut(t, s, put("h/a", "1"))
	w := watch(t, s, "h/", first)
	select {
	case err := <-w.err:
		t.Fatalf("the watch ended: %v", err)
	case <-time.After(5 * c.Silence() / 2):
	}
	last := commitPut(t, s, put("h/a", "2"))
	if b := w.next(t); b.Revision != last {
		t.Errorf("revision %d, expected %d", b.Revision, last)
	}
}

// testPartition: a watch that is cut off ends, although its connection stays open; a call ends with
// its context, or after the time of silence. Afterwards everything works, and what was missed
// arrives.
func testPartition(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	f := follow(t, s, "h/", unguarded)
	first := commitPut(t, s, put("h/a", "1"))
	f.reaches(t, first)
	w := watch(t, s, "h/", first)
	c.Partition(t, true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := s.Commit(ctx, store.Txn{Put: []store.Entry{put("h/b", "1")}})
	if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit: %v", err)
	}
	if took := time.Since(begin); took > testTimeout/2 {
		t.Errorf("the commit took %v", took)
	}
	_, err = s.Commit(limited(t), store.Txn{Put: []store.Entry{put("h/b", "1")}})
	expectError(t, "commit", err, store.ErrUnavailable)
	_, err = s.Read(limited(t), "h/", 0)
	expectError(t, "read", err, store.ErrUnavailable)
	expectError(t, "watch", w.failure(t), store.ErrUnavailable)
	f.fails(t, store.ErrUnavailable)
	c.Partition(t, false)
	close(f.again)
	f.reaches(t, commitPut(t, s, put("h/c", "1")))
	f.stop()
	if e, ok := store.NewCopy(f.copy.Enforced()).Get("h/c"); !ok || string(e.Value) != "1" {
		t.Errorf("h/c: %v %q", ok, e.Value)
	}
}

// testEmptied: a store that lost everything ends watches, and a guarded follower keeps enforcing
// what it has, takes what is new, and removes the rest when that is accepted.
func testEmptied(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	f := follow(t, s, "h/", store.Guard{
		Kind:  func(string) string { return "all" },
		Meant: func(*store.Copy, string) bool { return false },
	})
	var last int64
	for i := range 20 {
		last = commitPut(t, s, put(fmt.Sprintf("h/%d", i), "1"))
	}
	f.reaches(t, last)
	c.Empty(t)
	expectError(t, "watch", watch(t, s, "h/", last).failure(t), store.ErrBehind)
	revision := commitPut(t, s, put("h/new", "1"))
	if revision >= last {
		t.Fatalf("revision %d of an empty store, %d before", revision, last)
	}
	f.applied.Store(0)
	close(f.again)
	f.fails(t, store.ErrBehind)
	f.reaches(t, revision)
	f.stop()
	if len(f.copy.Enforced().Entries) != 21 || len(f.copy.Held()) != 20 {
		t.Errorf("%d keys are enforced, %d held", len(f.copy.Enforced().Entries),
			len(f.copy.Held()))
	}
	f.copy.Accept()
	if got := showEntries(f.copy.Enforced().Entries); got !=
		fmt.Sprintf("h/new=1@%d", revision) {
		t.Errorf("after the removals were accepted: %s", got)
	}
}

// testFaults: random commits under random compactions, restarts and partitions. In the end the
// follower has exactly what the store has.
func testFaults(t *testing.T, c Cluster) {
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	s := c.Open(t, nil)
	f := follow(t, s, "h/", unguarded)
	close(f.again)
	last := commitPut(t, s, put("h/begin", "1"))
	for i := range 300 {
		switch {
		case i%97 == 96:
			c.Restart(t)
		case i%61 == 60:
			c.Compact(t, last)
		case i%79 == 78:
			c.Partition(t, true)
			f.fails(t, store.ErrUnavailable)
			c.Partition(t, false)
		}
		x := store.Txn{Put: []store.Entry{put(fmt.Sprintf("h/%d", random.IntN(40)),
			fmt.Sprint(random.IntN(3)))}}
		if gone := fmt.Sprintf("h/%d", random.IntN(40)); gone != x.Put[0].Key {
			x.Delete = []string{gone}
		}
		last = commitAnyhow(t, s, x)
	}
	f.reaches(t, last)
	f.stop()
	f.expect(t, read(t, s, "h/", 0))
}

// commitAnyhow commits a transaction that may be made twice. A store whose disk is busy for longer
// than the time of silence gives no answer, and the transaction is tried again.
func commitAnyhow(t *testing.T, s store.Store, x store.Txn) (revision int64) {
	t.Helper()
	Eventually(t, "the store answers", func() bool {
		var err error
		if revision, err = s.Commit(t.Context(), x); err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("commit: %v", err)
			}
			return false
		}
		return true
	})
	return revision
}
