package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Limits of a transaction that signs removal records.
const (
	recordsAtOnce     = 100
	maxRemovalRecords = store.MaxBytes / 2 // bytes
)

// signRemovalRecords signs the removal records again that hosts believe by the list before and
// would not believe by the next one. Otherwise a host that joins later would accept the
// certificates of removed hosts. They get a signature that both lists accept, so a change of the
// list may fail behind it.
func (st *state) signRemovalRecords(ctx context.Context, s store.Store, by Signer,
	before, next cluster.KeyList) error {
	if !before.Locked() || !next.Locked() {
		return nil
	}
	var voided []store.Entry
	var names []string
	for _, e := range st.records {
		record, err := cluster.Decode[cluster.RemovalRecord](e.Value)
		if err != nil || record.Verify(e.Key, before.Keys) != nil ||
			record.Verify(e.Key, next.Keys) == nil {
			continue
		}
		if err := record.Sign(e.Key, by.Key); err != nil {
			return err
		}
		if e.Value, err = cluster.Encode(&record); err != nil {
			return err
		}
		voided = append(voided, e)
		names = append(names, strings.TrimPrefix(e.Key, cluster.RemovedTree))
	}
	if len(voided) > 0 && !next.Has(KeyOf(by.Key)) {
		return errLastSigner{names}
	}
	for len(voided) > 0 {
		var t store.Txn
		size := 0
		for _, e := range voided[:min(len(voided), recordsAtOnce)] {
			if size += len(e.Key) + len(e.Value); size > maxRemovalRecords && len(t.Put) > 0 {
				break
			}
			t.Put = append(t.Put, e)
			t.Compare = append(t.Compare, store.Compare{Key: e.Key, Revision: e.Revision})
		}
		voided = voided[len(t.Put):]
		if _, err := s.Commit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// errLastSigner refuses to remove keys without which hosts do not believe removals.
type errLastSigner struct{ records []string }

func (e errLastSigner) Error() string {
	return fmt.Sprintf("%d removals are signed by the keys that would go, and yours is one of "+
		"them: %s", len(e.records), strings.Join(e.records[:min(len(e.records), 5)], ", "))
}

// Hint returns who can remove the key.
func (errLastSigner) Hint() string {
	return "another administrator removes your key, and signs them again with that"
}
