package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Limits of a transaction. etcd refuses more than 128 operations and 1.5 MiB.
const (
	MaxOperations = 128
	MaxBytes      = 1 << 20 // of keys and values together
)

// Entry is a key with its value. A value is never changed after it was made.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64 // of the last change of the key
}

// Change is an entry that was written, or the key of one that was deleted.
type Change struct {
	Entry
	Deleted bool
}

// Batch is all that one transaction changed below the watched name, ordered by key. A batch without
// changes reports progress: there is nothing more up to its revision.
type Batch struct {
	Revision int64
	Changes  []Change
}

// Snapshot is everything below a name at one revision, ordered by key.
type Snapshot struct {
	Revision int64 // of the store, not below that of any entry
	Entries  []Entry
}

// Compare is a condition of a transaction: the last change of the key was made at the revision. 0:
// the key does not exist.
type Compare struct {
	Key      string
	Revision int64
}

// Txn is a transaction: if every comparison is true, all operations are made at one revision,
// otherwise none.
type Txn struct {
	Compare []Compare
	Put     []Entry // the revisions are ignored
	Delete  []string
}

// Store is what a driver does. It is safe for concurrent use.
//
// A name is one key, or a subtree if it ends in a slash (Covers). Errors are those of this package,
// wrapped, or that of the context.
type Store interface {
	// Read returns what is below a name, at a revision or, with 0, at the newest one. At the newest
	// one it sees every transaction that was committed before the call, by any host. It returns
	// ErrCompacted for a revision that is not kept any more, and ErrBehind for one that does not
	// exist yet.
	Read(ctx context.Context, name string, revision int64) (Snapshot, error)

	// Watch returns every change below a name after a revision: each transaction as one batch, in
	// order of revisions, none left out, none twice. It ends with one error, and without one when
	// the context ends.
	//
	// It ends with ErrCompacted when the revision, or changes after it, are not kept any more. It
	// ends with ErrBehind when the store has not reached the revision (an old backup was restored,
	// or the store was emptied). It ends with ErrUnavailable when it cannot be sure for the
	// driver's time of silence that it still hears of everything.
	Watch(ctx context.Context, name string, after int64) iter.Seq2[Batch, error]

	// Commit makes a transaction and returns its revision. After ErrUnavailable, or the context's
	// error, it may have been made or not: the comparisons make it safe to try again.
	Commit(ctx context.Context, t Txn) (revision int64, err error)
}

// Errors of a Store.
var (
	ErrCompacted   = errors.New("the store does not keep this revision any more")
	ErrBehind      = errors.New("the store has not reached this revision")
	ErrPermission  = errors.New("not permitted")
	ErrUnavailable = errors.New("the store does not answer")
	ErrConflict    = errors.New("changed by another writer")
	ErrInvalid     = errors.New("not a valid transaction")
)

// ConflictError is a comparison that was false. errors.Is(err, ErrConflict) is true for it.
type ConflictError struct {
	Compare
	Have int64 // the revision that the key has; 0 if it does not exist
}

func (e *ConflictError) Error() string {
	switch {
	case e.Revision == 0:
		return fmt.Sprintf("%s: %v: it exists since revision %d", e.Key, ErrConflict, e.Have)
	case e.Have == 0:
		return fmt.Sprintf("%s: %v: deleted since revision %d", e.Key, ErrConflict, e.Revision)
	}
	return fmt.Sprintf("%s: %v: at revision %d, not %d", e.Key, ErrConflict, e.Have, e.Revision)
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Covers reports whether name is the key, or a subtree that contains it.
func Covers(name, key string) bool {
	return name == key || strings.HasSuffix(name, "/") && strings.HasPrefix(key, name)
}

// Check returns an error of ErrInvalid for a transaction that no driver makes. Such a transaction
// does nothing, is too large, has a subtree where a key belongs, or changes or compares a key
// twice.
func (t Txn) Check() error {
	if len(t.Put)+len(t.Delete) == 0 {
		return fmt.Errorf("%w: it changes nothing", ErrInvalid)
	}
	if n := max(len(t.Compare), len(t.Put)+len(t.Delete)); n > MaxOperations {
		return fmt.Errorf("%w: %d operations, at most %d", ErrInvalid, n, MaxOperations)
	}
	size := 0
	changed, compared := map[string]bool{}, map[string]bool{}
	for _, p := range t.Put {
		size += len(p.Key) + len(p.Value)
		if err := checkKey(p.Key, changed); err != nil {
			return err
		}
	}
	for _, key := range t.Delete {
		if err := checkKey(key, changed); err != nil {
			return err
		}
	}
	for _, c := range t.Compare {
		if err := checkKey(c.Key, compared); err != nil {
			return err
		}
	}
	if size > MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, size, MaxBytes)
	}
	return nil
}

func checkKey(key string, seen map[string]bool) error {
	if key == "" || strings.HasSuffix(key, "/") {
		return fmt.Errorf("%w: %q is not a key", ErrInvalid, key)
	}
	if seen[key] {
		return fmt.Errorf("%w: %s appears twice", ErrInvalid, key)
	}
	seen[key] = true
	return nil
}
