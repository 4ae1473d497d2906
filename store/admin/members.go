package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// ChangeMembers adds members to a shared table, or takes them out: each bucket that changes is
// written once. It returns how many there were to change.
func ChangeMembers(ctx context.Context, s store.Store, table string, add []cluster.Member,
	remove []netip.Prefix) (changed int, err error) {
	if err := cluster.CheckName(table); err != nil {
		return 0, err
	}
	buckets := map[string]func(map[netip.Prefix]uint32) int{}
	change := func(p netip.Prefix, do func(map[netip.Prefix]uint32) int) {
		key := cluster.BucketKey(table, p)
		before := buckets[key]
		buckets[key] = func(m map[netip.Prefix]uint32) (n int) {
			if before != nil {
				n = before(m)
			}
			return n + do(m)
		}
	}
	for _, m := range add {
		change(m.Prefix, func(of map[netip.Prefix]uint32) int {
			if v, there := of[m.Prefix.Masked()]; there && v == m.Value {
				return 0
			}
			of[m.Prefix.Masked()] = m.Value
			return 1
		})
	}
	for _, p := range remove {
		change(p, func(of map[netip.Prefix]uint32) int {
			if _, there := of[p.Masked()]; !there {
				return 0
			}
			delete(of, p.Masked())
			return 1
		})
	}
	for key, edit := range buckets {
		n, err := changeBucket(ctx, s, key, edit)
		if changed += n; err != nil {
			return changed, fmt.Errorf("%s: %w", key, err)
		}
	}
	return changed, nil
}

// MayShare returns an error for a table that the newest version of the rules defines, or the one
// that a trial goes back to. Its members come with the rules: hosts refuse a version that defines a
// shared table, and no further one could be loaded.
func MayShare(ctx context.Context, s store.Store, table string,
	parse func(name, text string) (*rule.Ruleset, error)) error {
	got, err := s.Read(ctx, cluster.HeadKey, 0)
	if err != nil || len(got.Entries) == 0 {
		return err
	}
	head, err := cluster.Decode[cluster.Head](got.Entries[0].Value)
	if err != nil {
		return fmt.Errorf("%s: %w", cluster.HeadKey, err)
	}
	scopes := []map[cluster.Scope]cluster.Digest{head.Scopes}
	if head.Trial != nil {
		scopes = append(scopes, head.Trial.Revert.Scopes)
	}
	for _, one := range scopes {
		for _, scope := range slices.Sorted(maps.Keys(one)) {
			text, err := fetch(ctx, s, one[scope])
			if err != nil {
				return fmt.Errorf("the rules of scope %s: %w", scope, err)
			}
			set, err := parse(string(scope), text)
			if err != nil {
				return err
			}
			if _, there := set.Tables[table]; there {
				return errDefined{table, scope}
			}
		}
	}
	return nil
}

// errDefined refuses to share a table of the rules.
type errDefined struct {
	table string
	scope cluster.Scope
}

func (e errDefined) Error() string {
	return fmt.Sprintf("the rules of scope %s define table %s: its members are changed with them",
		e.scope, e.table)
}

// Hint returns how to change them.
func (e errDefined) Hint() string {
	return fmt.Sprintf("weir fw list --on %s > FILE, then weir fw load --on %s FILE", e.scope,
		e.scope)
}

// changeBucket reads a bucket and writes it if edit changes something, until no other writer was
// faster.
func changeBucket(ctx context.Context, s store.Store, key string,
	edit func(map[netip.Prefix]uint32) int) (int, error) {
	for {
		have, err := s.Read(ctx, key, 0)
		if err != nil {
			return 0, err
		}
		at, members := store.Compare{Key: key}, map[netip.Prefix]uint32{}
		for _, e := range have.Entries {
			at.Revision = e.Revision
			if len(e.Value) == 0 {
				continue
			}
			old, err := cluster.Decode[cluster.Members](e.Value)
			if err != nil {
				return 0, err
			}
			for _, m := range old.Members {
				members[m.Prefix] = m.Value
			}
		}
		n := edit(members)
		if n == 0 {
			return 0, nil
		}
		value := []byte{}
		if len(members) > 0 {
			var m cluster.Members
			for p, v := range members {
				m.Members = append(m.Members, cluster.Member{Prefix: p, Value: v})
			}
			slices.SortFunc(m.Members, func(a, b cluster.Member) int {
				return a.Prefix.Compare(b.Prefix)
			})
			if value, err = cluster.Encode(&m); err != nil {
				return 0, err
			}
		}
		_, err = s.Commit(ctx, store.Txn{Compare: []store.Compare{at},
			Put: []store.Entry{{Key: key, Value: value}}})
		if !errors.Is(err, store.ErrConflict) {
			return n, err
		}
	}
}
