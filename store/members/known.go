package members

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// known is what a Joiner has of the hosts and of the ranges. It is right while MembersKey has the
// revision that it belongs to: each join and each removal changes that key, and each join compares
// it. So joins in a row do not read every host again. It is the store of one join at a time.
type known struct {
	store.Store
	members int64 // revision of MembersKey
	right   bool
	hosts   *store.Copy
	ranges  *store.Copy
	bound   Certificates // of this join
}

// learn makes sure that the hosts and ranges are those of a MembersKey that was just read.
func (k *known) learn(ctx context.Context, members store.Snapshot) error {
	at := int64(0) // it does not exist
	for _, e := range members.Entries {
		at = e.Revision
	}
	if k.right && k.members == at {
		return nil
	}
	all, err := readAll(ctx, k.Store, members.Revision, cluster.NodeTree, cluster.RangeTree)
	if err != nil {
		return err
	}
	k.hosts, k.ranges = store.NewCopy(all[0]), store.NewCopy(all[1])
	k.members, k.right = at, true
	return nil
}

// Read implements store.Store. Ranges are read from the store only after one was lost to another
// host.
func (k *known) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	if name != cluster.RangeTree {
		return k.Store.Read(ctx, name, revision)
	}
	if k.right {
		return k.withBound(k.ranges.Snapshot())
	}
	got, err := k.Store.Read(ctx, name, revision)
	if err != nil {
		return got, err
	}
	return k.withBound(got)
}

// Commit implements store.Store. What it changes is known then. After an error nothing is.
func (k *known) Commit(ctx context.Context, t store.Txn) (int64, error) {
	revision, err := k.Store.Commit(ctx, t)
	if err != nil {
		k.right = false
	}
	if !k.right {
		return revision, err
	}
	for _, p := range t.Put {
		p.Revision = revision
		b := store.Batch{Revision: revision, Changes: []store.Change{{Entry: p}}}
		switch {
		case p.Key == cluster.MembersKey:
			k.members = revision
		case store.Covers(cluster.NodeTree, p.Key):
			k.hosts.Apply(b)
		case store.Covers(cluster.RangeTree, p.Key):
			k.ranges.Apply(b)
		}
	}
	return revision, nil
}

// readAll reads several names at once, at a revision, or each at the newest one with 0.
func readAll(ctx context.Context, s store.Store, revision int64, names ...string) ([]store.Snapshot,
	error) {
	all, errs := make([]store.Snapshot, len(names)), make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { all[i], errs[i] = s.Read(ctx, name, revision) })
	}
	group.Wait()
	return all, errors.Join(errs...)
}

// read decodes what was read of a key, as one does.
func read[T any, D interface {
	*T
	cluster.Document
}](key string, got store.Snapshot) (doc T, revision int64, ok bool, err error) {
	if len(got.Entries) == 0 {
		return doc, 0, false, nil
	}
	if doc, err = cluster.Decode[T, D](got.Entries[0].Value); err != nil {
		return doc, 0, false, fmt.Errorf("%s: %w", key, err)
	}
	return doc, got.Entries[0].Revision, true, nil
}
