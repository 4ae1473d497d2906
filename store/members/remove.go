package members

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// maxChunks is how many chunks of pods the first transaction of a removal deletes at most, and
// maxReleases how many ranges it releases. A certificate has no more ranges than that.
const (
	maxChunks   = 100
	maxReleases = 64
)

// Signing is the administrator who signs a removal, as a cluster with keys of administrators needs
// it, and what is known without the store, which may be stolen. The zero value signs nothing.
type Signing struct {
	Key    ed25519.PrivateKey
	CA     []cluster.Key // who signs certificates of hosts
	Admins []cluster.Key // whose signatures hosts believe
	Bound  Certificates  // a removal ends them, whatever the store has
	// CAKey signs that the name is free. nil: it stays bound, and its ranges, until Remove was
	// called with this key as well.
	CAKey ed25519.PrivateKey
}

// Remove removes a host: the removal record, its certificate, its endpoints, its pods, its report,
// and its right to its ranges, in one transaction. A host with many pods needs further ones.
func Remove(ctx context.Context, s store.Store, name string, by Signing) error {
	if err := cluster.CheckName(name); err != nil {
		return err
	}
	for {
		err := removeOnce(ctx, s, name, by)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func removeOnce(ctx context.Context, s store.Store, name string, by Signing) error {
	key := cluster.NodeTree + name
	got, err := s.Read(ctx, key, 0)
	if err != nil {
		return err
	}
	node, revision, ok, err := read[cluster.Node](key, got)
	_, bound := by.Bound[name]
	if err == nil && ok {
		err = by.check(&node, key, name, bound)
	}
	if err != nil && bound { // an attacker has written it
		ok, err, revision = false, nil, got.Entries[0].Revision
	}
	if errors.Is(err, cluster.ErrDocument) {
		return deleteGarbage(ctx, s, name, got.Entries[0])
	}
	if err != nil {
		return err
	}
	if !ok {
		if node, ok, err = lost(ctx, s, name, by); err != nil {
			return err
		}
	}
	if !ok {
		return errors.Join(removeRest(ctx, s, name), fmt.Errorf("there is no host %s", name))
	}
	record, unchanged, err := removalRecordOf(ctx, s, &node, by)
	if err != nil {
		return err
	}
	t, err := by.release(ctx, s, &node)
	if err != nil {
		return err
	}
	counted, err := countMembers(ctx, s)
	if err != nil {
		return err
	}
	t.Compare = append(append(t.Compare, counted.Compare...), unchanged,
		store.Compare{Key: key, Revision: revision})
	t.Put = append(append(t.Put, counted.Put...), record)
	t.Delete = append(t.Delete, key, cluster.EndpointKey+name, cluster.ReportTree+name)
	pods, err := s.Read(ctx, cluster.PodsTree+name+"/", 0)
	if err != nil {
		return err
	}
	chunks := min(len(pods.Entries), maxChunks, store.MaxOperations-len(t.Put)-len(t.Delete))
	for _, e := range pods.Entries[:chunks] {
		t.Delete = append(t.Delete, e.Key)
	}
	if _, err := s.Commit(ctx, t); err != nil {
		return err
	}
	return removeRest(ctx, s, name)
}

// deleteGarbage deletes what is in the place of the certificate of a host and is not a document: an
// attacker in the store has written it. Commands of administrators fail while it is there.
// It returns an error: if there was a host of that name, its certificate is not known here.
func deleteGarbage(ctx context.Context, s store.Store, name string, had store.Entry) error {
	t, err := countMembers(ctx, s)
	if err != nil {
		return err
	}
	t.Compare = append(t.Compare, store.Compare{Key: had.Key, Revision: had.Revision})
	t.Delete = append(t.Delete, had.Key)
	if _, err := s.Commit(ctx, t); err != nil {
		return err
	}
	return errors.Join(removeRest(ctx, s, name), fmt.Errorf("there is no host %s: what was in the "+
		"place of its certificate is deleted", name))
}

// release returns what releases the ranges of a host. Those of its certificates come first: an
// attacker in the store may have written any number of others, and a transaction has few
// operations.
func (by *Signing) release(ctx context.Context, s store.Store, node *cluster.Node) (t store.Txn,
	err error) {
	all, err := s.Read(ctx, cluster.RangeTree, 0)
	if err != nil {
		return t, err
	}
	rank := map[string]int{}
	for _, r := range slices.Concat(node.Ranges, by.Bound[node.Name].Ranges) {
		rank[cluster.RangeKey(r)] = -1
	}
	slices.SortStableFunc(all.Entries, func(a, b store.Entry) int {
		return rank[a.Key] - rank[b.Key]
	})
	t, err = cluster.ReleaseRanges(all, node.Name)
	n := min(len(t.Put), maxReleases)
	t.Compare, t.Put = t.Compare[:n], t.Put[:n]
	return t, err
}

// check returns an error for a certificate that is not that of the host. It needs the CA's
// signature if an administrator signs the removal, or if the store host knows one without the
// store.
func (by *Signing) check(node *cluster.Node, key, name string, bound bool) (err error) {
	if node.Name != name {
		err = fmt.Errorf("it is the certificate of %s", node.Name)
	} else if by.Key != nil || bound {
		err = node.Verify(by.CA)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func removedKey(name string) string { return cluster.RemovedTree + "node/" + name }

// readRemovalRecord returns the removal record of earlier removals, and its revision. One that is
// not a document has no serial numbers: no host believes it.
func readRemovalRecord(got store.Snapshot) (record cluster.RemovalRecord, revision int64) {
	for _, e := range got.Entries {
		record, _ = cluster.Decode[cluster.RemovalRecord](e.Value)
		revision = e.Revision
	}
	return record, revision
}

// believed returns what counts of a removal record: hosts do not believe the rest, so it is not to
// be signed. If it is not known whom hosts believe, nothing counts.
func (by *Signing) believed(key string, got store.Snapshot) (record cluster.RemovalRecord,
	revision int64) {
	record, revision = readRemovalRecord(got)
	if by.Key != nil && (len(by.Admins) == 0 || record.Verify(key, by.Admins) != nil) {
		record.Serials = nil
	}
	return record, revision
}

// lost returns the certificate of a host that the store does not have, and that was not removed or
// whose name is still bound.
func lost(ctx context.Context, s store.Store, name string, by Signing) (n cluster.Node, ok bool,
	err error) {
	bound, ok := by.Bound[name]
	if !ok {
		return n, false, nil
	}
	got, err := s.Read(ctx, removedKey(name), 0)
	record, _ := by.believed(removedKey(name), got)
	removed := slices.Contains(record.Serials, bound.Serial)
	if by.CAKey != nil {
		removed = removed && record.Frees(removedKey(name), bound.Serial, by.CA)
	}
	return bound.Node, !removed, err
}

// removalRecordOf returns the removal record, with the serial numbers of earlier ones. A host that
// was away may have seen only a certificate that the removed one replaces: so the removal record
// ends these, too.
func removalRecordOf(ctx context.Context, s store.Store, node *cluster.Node, by Signing) (
	store.Entry, store.Compare, error) {
	key := removedKey(node.Name)
	at := store.Compare{Key: key}
	got, err := s.Read(ctx, key, 0)
	if err != nil {
		return store.Entry{}, at, err
	}
	record, revision := by.believed(key, got)
	at.Revision = revision
	revoked := []cluster.Serial{node.Serial}
	if node.Verify(by.CA) == nil {
		revoked = node.Serials()
	}
	if bound, ok := by.Bound[node.Name]; ok {
		revoked = append(revoked, bound.Serials()...)
	}
	e, err := extendRemovalRecord(record, key, revoked, by.Key, by.CAKey)
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
