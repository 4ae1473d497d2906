package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Limits of the texts that no version names any more.
const (
	// textGrace is for how long a text stays that was just written: its version follows.
	textGrace = 10 * time.Minute
	// oldParts are kept of earlier versions, since an administrator may put one back that its own
	// host still enforces (admin.Sign). A part has at most 256 KiB, a usual text one part.
	oldParts = 64
	// textsEvery is how often they are looked at.
	textsEvery = time.Minute
	// textDeletes is how many parts one transaction deletes.
	textDeletes = 100
)

// TextCleanup deletes texts of rules that neither the version in force, nor one on trial, nor the
// one that it may revert to has. Those that were named last stay, up to a number of parts. The
// times are those of this process: no time of day is compared.
type TextCleanup struct {
	Store store.Store
	// Keys lists keys with their revisions, without values.
	Keys func(ctx context.Context, name string) ([]store.Entry, error)
	Now  func() time.Time // monotonic
	Log  func(err error)

	unnamed map[string]unnamedText // by digest
}

// unnamedText is a text that no version names.
type unnamedText struct {
	digest string
	parts  []store.Entry
	newest int64     // revision of its parts
	since  time.Time // when it was first seen so
}

// Run looks at the texts until the context ends.
func (x *TextCleanup) Run(ctx context.Context) error {
	return repeat(ctx, textsEvery, func() {
		if err := x.DeleteUnused(ctx); err != nil && ctx.Err() == nil {
			x.Log(fmt.Errorf("texts of rules: %w", err))
		}
	})
}

// DeleteUnused deletes the texts that are too many. A transaction compares the version, and the
// revision of what it deletes: one who loads a text again has written it again.
func (x *TextCleanup) DeleteUnused(ctx context.Context) error {
	head, revision, _, err := one[cluster.Head](ctx, x.Store, cluster.HeadKey)
	if err != nil {
		return err
	}
	keys, err := x.Keys(ctx, cluster.TextTree)
	if err != nil {
		return err
	}
	x.note(keys, named(&head))
	at := store.Compare{Key: cluster.HeadKey, Revision: revision}
	kept := 0
	for _, t := range slices.SortedFunc(maps.Values(x.unnamed), lastNamed) {
		if kept += len(t.parts); kept <= oldParts || x.Now().Sub(t.since) < textGrace {
			continue
		}
		if err := x.delete(ctx, t.parts, at); errors.Is(err, store.ErrConflict) {
			return nil // a load is under way: the next sweep looks again
		} else if err != nil {
			return err
		}
	}
	return nil
}

// note groups the parts of the texts that are not named.
func (x *TextCleanup) note(keys []store.Entry, named map[string]bool) {
	now, before := x.Now(), x.unnamed
	x.unnamed = map[string]unnamedText{}
	for _, e := range keys {
		digest, _, _ := strings.Cut(strings.TrimPrefix(e.Key, cluster.TextTree), "/")
		if named[digest] {
			continue
		}
		t := x.unnamed[digest]
		t.digest, t.since = digest, now
		t.newest = max(t.newest, e.Revision)
		t.parts = append(t.parts, e)
		x.unnamed[digest] = t
	}
	for digest, t := range x.unnamed {
		if had, ok := before[digest]; ok && had.newest == t.newest {
			t.since = had.since
			x.unnamed[digest] = t
		}
	}
}

// named returns the digests that a version needs.
func named(h *cluster.Head) map[string]bool {
	all := map[string]bool{}
	for _, digest := range h.Scopes {
		all[digest.String()] = true
	}
	if h.Trial != nil {
		maps.Copy(all, named(&h.Trial.Revert))
	}
	return all
}

// lastNamed orders those first that a version named last.
func lastNamed(a, b unnamedText) int {
	return cmp.Or(b.since.Compare(a.since), cmp.Compare(b.newest, a.newest),
		cmp.Compare(a.digest, b.digest))
}

func (x *TextCleanup) delete(ctx context.Context, parts []store.Entry, at store.Compare) error {
	for some := range slices.Chunk(parts, textDeletes) {
		t := store.Txn{Compare: []store.Compare{at}}
		for _, e := range some {
			t.Compare = append(t.Compare, store.Compare{Key: e.Key, Revision: e.Revision})
			t.Delete = append(t.Delete, e.Key)
		}
		if _, err := x.Store.Commit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
