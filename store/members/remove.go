package members

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// maxChunks is how many chunks of pods the first transaction of a removal deletes.
const maxChunks = 100

// Remove removes a host: the mark, its certificate, its endpoints, its pods, its report, and its
// right to its ranges, in one transaction. A host with many pods needs further ones. admin signs
// the mark, which a cluster with keys of administrators needs; nil: no signature.
func Remove(ctx context.Context, s store.Store, name string, admin ed25519.PrivateKey) error {
	if err := cluster.CheckName(name); err != nil {
		return err
	}
	for {
		err := removeOnce(ctx, s, name, admin)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func removeOnce(ctx context.Context, s store.Store, name string, admin ed25519.PrivateKey) error {
	key := cluster.NodeTree + name
	node, revision, ok, err := one[cluster.Node](ctx, s, key)
	if err != nil {
		return err
	}
	if !ok {
		return errors.Join(removeRest(ctx, s, name), fmt.Errorf("there is no host %s", name))
	}
	mark, marked, err := markOf(ctx, s, node, admin)
	if err != nil {
		return err
	}
	ranges, err := s.Read(ctx, cluster.RangeTree, 0)
	if err != nil {
		return err
	}
	t, err := cluster.Release(ranges, name)
	if err != nil {
		return err
	}
	counted, err := countMembers(ctx, s)
	if err != nil {
		return err
	}
	t.Compare = append(append(t.Compare, counted.Compare...), marked,
		store.Compare{Key: key, Revision: revision})
	t.Put = append(append(t.Put, counted.Put...), mark)
	t.Delete = append(t.Delete, key, cluster.EndpointKey+name, cluster.ReportTree+name)
	pods, err := s.Read(ctx, cluster.PodsTree+name+"/", 0)
	if err != nil {
		return err
	}
	for _, e := range pods.Entries[:min(len(pods.Entries), maxChunks)] {
		t.Delete = append(t.Delete, e.Key)
	}
	if _, err := s.Commit(ctx, t); err != nil {
		return err
	}
	return removeRest(ctx, s, name)
}

// markOf returns the mark of a removal, with the serial numbers of earlier ones.
func markOf(ctx context.Context, s store.Store, node cluster.Node, admin ed25519.PrivateKey) (
	store.Entry, store.Compare, error) {
	key := cluster.RemovedTree + "node/" + node.Name
	mark, revision, _, err := one[cluster.Removed](ctx, s, key)
	at := store.Compare{Key: key, Revision: revision}
	if err != nil {
		return store.Entry{}, at, err
	}
	e, err := markWith(mark, key, node.Serial, admin)
	return e, at, err
}

// removeRest deletes the pods of a host that is gone.
func removeRest(ctx context.Context, s store.Store, name string) error {
	for {
		pods, err := s.Read(ctx, cluster.PodsTree+name+"/", 0)
		if err != nil || len(pods.Entries) == 0 {
			return err
		}
		t := store.Txn{Compare: []store.Compare{{Key: cluster.NodeTree + name}}}
		for _, e := range pods.Entries[:min(len(pods.Entries), maxChunks)] {
			t.Delete = append(t.Delete, e.Key)
		}
		switch _, err := s.Commit(ctx, t); {
		case errors.Is(err, store.ErrConflict):
			return nil // a host of this name joined meanwhile: its pods are its own
		case err != nil:
			return err
		}
	}
}
