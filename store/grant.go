package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
)

// Grant permits to read a name (Covers), and to write it if Write is set.
type Grant struct {
	Name  string
	Write bool
}

// Limited is a Store that allows only what the grants permit. weir-store gives every host one. A
// driver may check the same grants once more.
type Limited struct {
	store  Store
	grants []Grant
}

// Limit returns the part of a store that the grants permit.
func Limit(s Store, grants []Grant) *Limited { return &Limited{s, grants} }

// permits reports whether one grant covers all of a name. A subtree is covered by the same subtree
// or a larger one only, never by several that add up.
func (l *Limited) permits(name string, write bool) bool {
	return slices.ContainsFunc(l.grants, func(g Grant) bool {
		return Covers(g.Name, name) && (g.Write || !write)
	})
}

func (l *Limited) check(name string, write bool) error {
	if l.permits(name, write) {
		return nil
	}
	if write {
		return fmt.Errorf("write %s: %w", name, ErrPermission)
	}
	return fmt.Errorf("read %s: %w", name, ErrPermission)
}

// Read implements Store.
func (l *Limited) Read(ctx context.Context, name string, revision int64) (Snapshot, error) {
	if err := l.check(name, false); err != nil {
		return Snapshot{}, err
	}
	return l.store.Read(ctx, name, revision)
}

// Watch implements Store.
func (l *Limited) Watch(ctx context.Context, name string, after int64) iter.Seq2[Batch, error] {
	if err := l.check(name, false); err != nil {
		return func(yield func(Batch, error) bool) { yield(Batch{}, err) }
	}
	return l.store.Watch(ctx, name, after)
}

// Commit implements Store. A comparison needs the right to read, since its result reports what is
// there.
func (l *Limited) Commit(ctx context.Context, t Txn) (int64, error) {
	for _, c := range t.Compare {
		if err := l.check(c.Key, false); err != nil {
			return 0, err
		}
	}
	for _, p := range t.Put {
		if err := l.check(p.Key, true); err != nil {
			return 0, err
		}
	}
	for _, key := range t.Delete {
		if err := l.check(key, true); err != nil {
			return 0, err
		}
	}
	return l.store.Commit(ctx, t)
}
