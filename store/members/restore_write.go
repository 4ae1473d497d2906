package members

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Write writes it into an empty store, which no weir-store serves meanwhile. In one that has a part
// of it, since an earlier run was cut off, it writes the rest.
func (r *Restoration) Write(ctx context.Context, s store.Store) error {
	rest, last, err := r.missing(ctx, s)
	if err != nil {
		return err
	}
	for len(rest) > 0 {
		n, size := 0, 0
		for ; n < len(rest) && n < store.MaxOperations; n++ {
			size += len(rest[n].Key) + len(rest[n].Value)
			if n > 0 && size > store.MaxBytes {
				break
			}
		}
		if err := writePart(ctx, s, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if len(last) == 0 {
		return nil
	}
	// Without these two, no one can use what is there.
	return writePart(ctx, s, last)
}

// writePart writes into a store without a cluster.
func writePart(ctx context.Context, s store.Store, part []store.Entry) error {
	_, err := s.Commit(ctx, store.Txn{Compare: []store.Compare{{Key: cluster.IdentityKey}},
		Put: part})
	if err != nil {
		return fmt.Errorf("%w; what is written is not in use: run the same command again, which "+
			"writes the rest", err)
	}
	return nil
}

// missing returns what of rest and last the store does not have. An error means that it has
// something else, or a cluster.
func (r *Restoration) missing(ctx context.Context, s store.Store) (rest, last []store.Entry,
	err error) {
	there, err := s.Read(ctx, cluster.Root, 0)
	if err != nil {
		return nil, nil, err
	}
	wanted := make(map[string][]byte, len(r.rest)+len(r.last))
	for _, e := range slices.Concat(r.rest, r.last) {
		wanted[e.Key] = e.Value
	}
	made := false
	for _, e := range there.Entries {
		if value, ok := wanted[e.Key]; !ok || !bytes.Equal(value, e.Value) {
			return nil, nil, fmt.Errorf("the store is not empty, and this restore does not write "+
				"what %s has there: %s", e.Key, emptyStore)
		}
		made = made || e.Key == cluster.IdentityKey
		delete(wanted, e.Key)
	}
	if made && len(wanted) > 0 {
		return nil, nil, fmt.Errorf("%w: %s", ErrExists, emptyStore)
	}
	written := func(e store.Entry) bool {
		_, misses := wanted[e.Key]
		return !misses
	}
	return slices.DeleteFunc(slices.Clone(r.rest), written),
		slices.DeleteFunc(slices.Clone(r.last), written), nil
}

// emptyStore is what to do about a store that is not empty.
const emptyStore = "if it is of a restore that was cut off, run that again with the same backup " +
	"and the same options, which writes the rest; if no one needs it, delete it (etcdctl del " +
	"--prefix " + cluster.Root + "); otherwise take another etcd"
