package admin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
