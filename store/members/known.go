package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	ranges  owned
	bound   Certificates // of this join
}

// owned are the owners of ranges, decoded once: of many removed hosts each has a range.
type owned map[netip.Prefix]cluster.Owner

// set takes the owners of ranges that were read or written.
func (w owned) set(owners []cluster.Owner) {
	for _, o := range owners {
		w[o.Range] = o
	}
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
	k.hosts, k.ranges = store.NewCopy(all[0]), owned{}
	k.ranges.set(cluster.Owners(all[1]))
	k.members, k.right = at, true
	return nil
}

// owners returns the owners of all ranges. They are read from the store only after one was lost to
// another host. Those that certificates bind belong to their hosts, whatever the store has.
func (k *known) owners(ctx context.Context) ([]cluster.Owner, error) {
	ranges := k.ranges
	if !k.right {
		read, err := cluster.ReadOwners(ctx, k.Store)
		if err != nil {
			return nil, err
		}
		ranges = owned{}
		ranges.set(read)
	}
	bound := owned{}
	for name, c := range k.bound {
		for _, r := range c.Ranges {
			bound[r] = cluster.Owner{Range: r, Name: name, Revision: ranges[r].Revision}
		}
	}
	all := make([]cluster.Owner, 0, len(ranges)+len(bound))
	for r, o := range ranges {
		if _, is := bound[r]; !is {
			all = append(all, o)
		}
	}
	return slices.AppendSeq(all, maps.Values(bound)), nil
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
		switch {
		case p.Key == cluster.MembersKey:
			k.members = revision
		case store.Covers(cluster.NodeTree, p.Key):
			k.hosts.Apply(store.Batch{Revision: revision, Changes: []store.Change{{Entry: p}}})
		case store.Covers(cluster.RangeTree, p.Key):
			k.ranges.set(cluster.Owners(store.Snapshot{Entries: []store.Entry{p}}))
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
