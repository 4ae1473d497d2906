// Package storetest has the conformance suite that every driver of package store passes, and the
// reference model: a store in memory that keeps every revision and is obviously right.
//
// A driver's test calls Run with an Opener. The suite commits, watches, compacts, restarts and
// partitions through a Cluster, and compares what arrives with what was committed.
package storetest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/store"
)

// Model is a store in memory. Its faults (Compact, Restart, Partition, Rewind) are those that a
// Cluster makes for a driver.
type Model struct {
	silence time.Duration

	mu        sync.Mutex
	batches   []store.Batch // batch i has revision i+1
	compacted int64         // batches up to this one are not given out any more
	cut       bool
	life      int           // counts restarts: a watch of an earlier life ends
	changed   chan struct{} // closed at the next change of any of the above
}

// NewModel returns an empty store. A watch ends after it was cut off for the time of silence.
func NewModel(silence time.Duration) *Model {
	return &Model{silence: silence, changed: make(chan struct{})}
}

func (m *Model) wakeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// atLocked returns the entries below a name at a revision: all batches up to it, applied.
func (m *Model) atLocked(name string, revision int64) []store.Entry {
	entries := map[string]store.Entry{}
	for _, b := range m.batches[:revision] {
		for _, ch := range b.Changes {
			if ch.Deleted {
				delete(entries, ch.Key)
			} else if store.Covers(name, ch.Key) {
				entries[ch.Key] = ch.Entry
			}
		}
	}
	return slices.SortedFunc(maps.Values(entries),
		func(a, b store.Entry) int { return cmp.Compare(a.Key, b.Key) })
}

// reach waits while the model is cut off, and returns with the lock held if there is no error.
func (m *Model) reach(ctx context.Context) error {
	silent := time.NewTimer(m.silence)
	defer silent.Stop()
	for {
		m.mu.Lock()
		if !m.cut {
			return nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silent.C:
			return store.ErrUnavailable
		case <-changed:
		}
	}
}

// Read implements store.Store.
func (m *Model) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	if err := m.reach(ctx); err != nil {
		return store.Snapshot{}, err
	}
	defer m.mu.Unlock()
	newest := int64(len(m.batches))
	switch {
	case revision == 0:
		revision = newest
	case revision > newest:
		return store.Snapshot{}, store.ErrBehind
	case revision < m.compacted:
		return store.Snapshot{}, store.ErrCompacted
	}
	return store.Snapshot{Revision: revision, Entries: m.atLocked(name, revision)}, nil
}

// Commit implements store.Store.
func (m *Model) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	if err := m.reach(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	newest := int64(len(m.batches))
	for _, c := range t.Compare {
		have := int64(0)
		for _, e := range m.atLocked(c.Key, newest) {
			have = e.Revision
		}
		if have != c.Revision {
			return 0, &store.ConflictError{Compare: c, Have: have}
		}
	}
	b := store.Batch{Revision: newest + 1}
	for _, p := range t.Put {
		p.Revision = b.Revision
		p.Value = slices.Clone(p.Value)
		b.Changes = append(b.Changes, store.Change{Entry: p})
	}
	for _, key := range t.Delete {
		if len(m.atLocked(key, newest)) > 0 {
			gone := store.Entry{Key: key, Revision: b.Revision}
			b.Changes = append(b.Changes, store.Change{Entry: gone, Deleted: true})
		}
	}
	if len(b.Changes) == 0 {
		return newest, nil
	}
	slices.SortFunc(b.Changes, func(a, b store.Change) int { return cmp.Compare(a.Key, b.Key) })
	m.batches = append(m.batches, b)
	m.wakeLocked()
	return b.Revision, nil
}

// Watch implements store.Store.
func (m *Model) Watch(ctx context.Context, name string, after int64) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		life := -1
		for {
			b, changed, err := m.next(ctx, name, after, &life)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(store.Batch{}, err)
				return
			case changed == nil:
				after = b.Revision
				if len(b.Changes) > 0 && !yield(b, nil) {
					return
				}
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// next returns the batch after a revision, or what to wait for.
func (m *Model) next(ctx context.Context, name string, after int64, life *int) (store.Batch,
	<-chan struct{}, error) {
	if err := m.reach(ctx); err != nil {
		return store.Batch{}, nil, err
	}
	defer m.mu.Unlock()
	if *life < 0 {
		*life = m.life
	}
	switch {
	case *life != m.life:
		return store.Batch{}, nil, fmt.Errorf("restarted: %w", store.ErrUnavailable)
	case after > int64(len(m.batches)):
		return store.Batch{}, nil, store.ErrBehind
	case after < m.compacted:
		return store.Batch{}, nil, store.ErrCompacted
	case after == int64(len(m.batches)):
		return store.Batch{}, m.changed, nil
	}
	b := m.batches[after]
	b.Changes = slices.DeleteFunc(slices.Clone(b.Changes), func(ch store.Change) bool {
		return !store.Covers(name, ch.Key)
	})
	return b, nil, nil
}

// Compact forgets the changes before a revision.
func (m *Model) Compact(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compacted = max(m.compacted, revision)
}

// Restart ends every watch.
func (m *Model) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life++
	m.wakeLocked()
}

// Partition cuts everybody off, or lets them through again.
func (m *Model) Partition(cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
	m.wakeLocked()
}

// Rewind takes the store back to a revision, as an old backup does. 0 empties it.
func (m *Model) Rewind(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches, m.compacted = m.batches[:revision:revision], min(m.compacted, revision)
	m.life++
	m.wakeLocked()
}
