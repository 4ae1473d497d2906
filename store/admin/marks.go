package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Limits of a transaction that signs marks.
const (
	marksAtOnce = 100
	maxMarks    = store.MaxBytes / 2 // bytes
)

// signMarks signs the marks of removals again that hosts believe by the list before and would not
// believe by the next one: a host that joins later would accept the certificates of removed hosts.
// They get a signature that both lists accept, so a change of the list may fail behind it.
func (st *state) signMarks(ctx context.Context, s store.Store, by Signer,
	before, next cluster.KeyList) error {
	if !before.Locked() || !next.Locked() {
		return nil
	}
	var voided []store.Entry
	var names []string
	for _, e := range st.marks {
		mark, err := cluster.Decode[cluster.Removed](e.Value)
		if err != nil || mark.Verify(e.Key, before.Keys) != nil ||
			mark.Verify(e.Key, next.Keys) == nil {
			continue
		}
		if err := mark.Sign(e.Key, by.Key); err != nil {
			return err
		}
		if e.Value, err = cluster.Encode(&mark); err != nil {
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
		for _, e := range voided[:min(len(voided), marksAtOnce)] {
			if size += len(e.Key) + len(e.Value); size > maxMarks && len(t.Put) > 0 {
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
type errLastSigner struct{ marks []string }

func (e errLastSigner) Error() string {
	return fmt.Sprintf("%d removals are signed by the keys that would go, and yours is one of "+
		"them: %s", len(e.marks), strings.Join(e.marks[:min(len(e.marks), 5)], ", "))
}

// Hint returns who can remove the key.
func (errLastSigner) Hint() string {
	return "another administrator removes your key, and signs them again with that"
}
