package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
)

// testTimeout is how long the suite waits for what must come.
const testTimeout = 5 * time.Minute

// Cluster is a running store with the faults that a driver's test can make. It is empty at first,
// and goes when the test ends.
type Cluster interface {
	// Open returns a store as one that has these grants sees it; nil grants everything.
	Open(t *testing.T, grants []store.Grant) store.Store
	// Compact forgets the changes before a revision.
	Compact(t *testing.T, revision int64)
	// Restart kills the store and starts it again with what it had on its disk.
	Restart(t *testing.T)
	// Partition cuts the stores that were opened off, without closing a connection, or ends that.
	Partition(t *testing.T, cut bool)
	// Silence is the time after which a watch that hears nothing ends.
	Silence() time.Duration
	// Empty takes everything from the store: its revision begins again.
	Empty(t *testing.T)
}

// Opener starts a cluster for one test.
type Opener func(t *testing.T) Cluster

// Run runs the conformance suite.
func Run(t *testing.T, open Opener) {
	run(t, open, func(t *testing.T, test func(*testing.T)) { test(t) })
}

// RunInBubbles runs each test in a bubble of testing/synctest: how busy the machine is makes no
// store silent. The cluster may use nothing but memory.
func RunInBubbles(t *testing.T, open Opener) { run(t, open, synctest.Test) }

func run(t *testing.T, open Opener, in func(*testing.T, func(*testing.T))) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Cluster)
	}{
		{"Order", testOrder},
		{"Resume", testResume},
		{"Snapshots", testSnapshots},
		{"Limits", testLimits},
		{"Pages", testPages},
		{"Invalid", testInvalid},
		{"Conflict", testConflict},
		{"Counters", testCounters},
		{"Claims", testClaims},
		{"Permission", testPermission},
		{"Compacted", testCompacted},
		{"CompactedDelete", testCompactedDelete},
		{"FollowCompacted", testFollowCompacted},
		{"Restart", testRestart},
		{"Quiet", testQuiet},
		{"Still", testStill},
		{"Partition", testPartition},
		{"Emptied", testEmptied},
		{"Faults", testFaults},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) { c.test(t, open(t)) })
		})
	}
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func put(key, value string) store.Entry { return store.Entry{Key: key, Value: []byte(value)} }

func commit(t *testing.T, s store.Store, x store.Txn) int64 {
	t.Helper()
	revision, err := s.Commit(limited(t), x)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return revision
}

func commitPut(t *testing.T, s store.Store, entries ...store.Entry) int64 {
	t.Helper()
	return commit(t, s, store.Txn{Put: entries})
}

func read(t *testing.T, s store.Store, name string, revision int64) store.Snapshot {
	t.Helper()
	snapshot, err := s.Read(limited(t), name, revision)
	if err != nil {
		t.Fatalf("read %s at %d: %v", name, revision, err)
	}
	return snapshot
}

// watched is a watch that runs in the background.
type watched struct {
	batches chan store.Batch
	err     chan error
}

func watch(t *testing.T, s store.Store, name string, after int64) *watched {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{make(chan store.Batch, 10000), make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b, err := range s.Watch(ctx, name, after) {
			if err != nil {
				w.err <- err
				return
			}
			w.batches <- b
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// next returns the next batch with changes.
func (w *watched) next(t *testing.T) store.Batch {
	t.Helper()
	late := time.After(testTimeout)
	for {
		select {
		case b := <-w.batches:
			if len(b.Changes) > 0 {
				return b
			}
		case err := <-w.err:
			t.Fatalf("the watch ended: %v", err)
		case <-late:
			t.Fatal("the watch is silent")
		}
	}
}

// failure returns the error that a watch ends with.
func (w *watched) failure(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.err:
		return err
	case <-time.After(testTimeout):
		t.Fatal("the watch does not end")
		return nil
	}
}

func expectError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, expected: %v", what, err, want)
	}
}

// show prints changes for comparisons.
func show(changes []store.Change) string {
	var parts []string
	for _, c := range changes {
		if c.Deleted {
			parts = append(parts, c.Key+" deleted")
		} else {
			parts = append(parts, fmt.Sprintf("%s=%s@%d", c.Key, c.Value, c.Revision))
		}
	}
	return strings.Join(parts, " ")
}

func showEntries(entries []store.Entry) string {
	changes := make([]store.Change, len(entries))
	for i, e := range entries {
		changes[i] = store.Change{Entry: e}
	}
	return show(changes)
}

func orderedByKey(b store.Batch) bool {
	return slices.IsSortedFunc(b.Changes, func(x, y store.Change) int {
		return strings.Compare(x.Key, y.Key)
	})
}
