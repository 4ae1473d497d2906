package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
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
		host := fmt.Sprint(cluster.NodeTree, "h", random.IntN(30))
		r := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(30))}), 24)
		put := []store.Entry{{Key: cluster.RangeKey(r), Value: fmt.Appendf(nil, `{"name":"h%d"}`,
			n)}}
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
		if o, ok := k.ranges[r]; ok {
			txn.Compare = append(txn.Compare, store.Compare{Key: put[0].Key, Revision: o.Revision})
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
	hosts, ranges := k.hosts.Snapshot().Entries, owned{}
	ranges.set(cluster.Owners(got[2]))
	return (len(hosts)+len(got[1].Entries) == 0 || reflect.DeepEqual(hosts, got[1].Entries)) &&
		(!again || maps.Equal(k.ranges, ranges))
}

// TestOwnersAreDecodedOnce: a join decodes none of the ranges that are known, however many removed
// hosts had one.
func TestOwnersAreDecodedOnce(t *testing.T) {
	const removed = 10_000
	p := cluster.Pool{Supernet: netip.MustParsePrefix("10.0.0.0/8"), Bits: 24}
	var all []store.Entry
	for i := range removed {
		r := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i)}), 24)
		all = append(all, store.Entry{Key: cluster.RangeKey(r), Revision: 1,
			Value: fmt.Appendf(nil, `{"name":"h%d","released":true}`, i)})
	}
	k := &known{Store: storetest.NewModel(time.Second), right: true, ranges: owned{},
		bound: Certificates{"b": {Node: cluster.Node{
			Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}}}
	k.ranges.set(cluster.Owners(store.Snapshot{Entries: all}))
	n := testing.AllocsPerRun(5, func() {
		owners, err := k.owners(t.Context())
		if err != nil || len(owners) != removed {
			t.Fatalf("%d owners, %v", len(owners), err)
		}
		if _, err := p.Choose("a", owners); err != nil {
			t.Fatal(err)
		}
	})
	if n > removed/10 {
		t.Errorf("%v allocations", n)
	}
}
