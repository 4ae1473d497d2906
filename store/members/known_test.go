package members

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/storetest"
)

// counted counts reads of subtrees.
type counted struct {
	store.Store
	reads atomic.Int64
}

func (c *counted) Read(ctx context.Context, name string, at int64) (store.Snapshot, error) {
	if name[len(name)-1] == '/' {
		c.reads.Add(1)
	}
	return c.Store.Read(ctx, name, at)
}

// TestKnown: what two weir-stores know of hosts and ranges is what the store has. This holds when
// one of both changes them, or an administrator, or one who changes a range behind their back.
// Joins in a row on one weir-store read no subtree.
func TestKnown(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	model := storetest.NewModel(time.Second)
	all := []*known{{Store: &counted{Store: model}}, {Store: &counted{Store: model}}}
	last, lost, saved := -1, 0, 0
	for n := range 600 {
		which := random.IntN(4) // 2: an administrator, 3: a range alone
		host, key := fmt.Sprint(cluster.NodeTree, "h", random.IntN(30)),
			fmt.Sprint(cluster.RangeTree, "r", random.IntN(30))
		put := []store.Entry{{Key: key, Value: fmt.Append(nil, n)}}
		if which == 3 {
			if _, err := model.Commit(t.Context(), store.Txn{Put: put}); err != nil {
				t.Fatal(err)
			}
			if random.IntN(3) > 0 {
				continue
			}
			which = max(last, 0) // it does not know of that
		}
		counting, err := countMembers(t.Context(), model)
		if err != nil {
			t.Fatal(err)
		}
		txn := store.Txn{Compare: counting.Compare, Put: append(put, counting.Put...)}
		if which == 2 {
			txn.Delete = []string{host}
			if _, err := model.Commit(t.Context(), txn); err != nil {
				t.Fatal(err)
			}
			continue
		}
		k := all[which]
		reads := k.Store.(*counted).reads.Load()
		if !k.learnAndCheck(t, model, random.IntN(2) == 0) {
			t.Fatalf("seed %d: weir-store %d does not know what the store has", seed, which)
		}
		if which == last && k.Store.(*counted).reads.Load() == reads {
			saved++
		}
		if e, ok := k.ranges.Get(key); ok {
			txn.Compare = append(txn.Compare, store.Compare{Key: key, Revision: e.Revision})
		}
		txn.Put = append(txn.Put, store.Entry{Key: host, Value: fmt.Append(nil, n)})
		if _, err := k.Commit(t.Context(), txn); errors.Is(err, store.ErrConflict) {
			lost++
		} else if err != nil {
			t.Fatal(err)
		}
		last = which
	}
	if lost < 10 || saved < 10 {
		t.Errorf("seed %d: %d conflicts, %d times without reading", seed, lost, saved)
	}
}

// learnAndCheck reports whether the hosts are those of the store; afterwards the ranges are, if
// nothing was known before.
func (k *known) learnAndCheck(t *testing.T, s store.Store, again bool) bool {
	t.Helper()
	if again {
		k.right = false
	}
	got, err := readAll(t.Context(), s, 0, cluster.MembersKey, cluster.NodeTree, cluster.RangeTree)
	if err == nil {
		err = k.learn(t.Context(), got[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	same := func(c *store.Copy, s store.Snapshot) bool {
		have := c.Snapshot().Entries
		return len(have)+len(s.Entries) == 0 || reflect.DeepEqual(have, s.Entries)
	}
	return same(k.hosts, got[1]) && (!again || same(k.ranges, got[2]))
}
