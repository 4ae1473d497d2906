package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

func pool(supernet string, bits int) Pool {
	return Pool{netip.MustParsePrefix(supernet), bits}
}

func TestPools(t *testing.T) {
	for _, p := range []Pool{pool("10.0.0.0/8", 24), pool("fd00::/32", 64), pool("10.0.0.0/24", 24),
		pool("10.0.0.0/24", 32)} {
		if err := p.Check(); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
	for _, p := range []Pool{{}, pool("10.0.0.1/8", 24), pool("10.0.0.0/24", 23),
		pool("10.0.0.0/8", 33), pool("fd00::/16", 64)} {
		if p.Check() == nil {
			t.Errorf("%v is accepted", p)
		}
	}
}

func TestIndexes(t *testing.T) {
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	for _, p := range []Pool{pool("10.64.0.0/10", 27), pool("fd00:1::/40", 63)} {
		for range 1000 {
			n := random.Uint64N(1 << (p.Bits - p.Supernet.Bits()))
			if r := p.at(n); p.index(r.Addr()) != n || !p.Supernet.Contains(r.Addr()) ||
				r != r.Masked() {
				t.Fatalf("%v: %d is %v is %d", p, n, r, p.index(r.Addr()))
			}
		}
	}
	if r := pool("10.0.0.0/8", 24).at(258); r.String() != "10.1.2.0/24" {
		t.Errorf("258 is %v", r)
	}
}

// TestChoose takes random steps in a small pool and compares with what a plain list says. A host
// keeps its range, or gets a former one back. A released range is given to another host only when
// there is none without a former owner, the longest released first.
func TestChoose(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	exhausted, reused, back := 0, 0, 0
	for range 200 {
		p := pool("10.0.0.0/24", 28)
		var list []Owner
		for step := range int64(80) {
			name := fmt.Sprint(random.IntN(24))
			i := slices.IndexFunc(list, func(o Owner) bool { return o.Name == name })
			if random.IntN(3) == 0 {
				if i >= 0 && !list[i].Released {
					list[i].Released, list[i].Revision = true, step
				}
				continue
			}
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			i = slices.IndexFunc(list, func(o Owner) bool { return o.Name == name })
			oldest := -1
			for j, o := range list {
				if o.Released && (oldest < 0 || o.Revision < list[oldest].Revision) {
					oldest = j
				}
			}
			got, err := p.Choose(name, list)
			switch {
			case i >= 0:
				if err != nil || got != list[i] {
					t.Fatalf("seed %d: %s had %v and gets %v, %v", seed, name, list[i], got, err)
				}
				if list[i].Released {
					back++
				}
				list[i].Released, list[i].Revision = false, step
			case len(list) < 16:
				if err != nil || got.Revision != 0 || got.Range.Bits() != 28 ||
					!p.Supernet.Contains(got.Range.Addr()) ||
					slices.ContainsFunc(list, func(o Owner) bool { return o.Range == got.Range }) {
					t.Fatalf("seed %d: %s gets %v, %v of %v", seed, name, got, err, list)
				}
				list = append(list, Owner{Range: got.Range, Name: name, Revision: step})
			case oldest >= 0:
				if err != nil || got != list[oldest] {
					t.Fatalf("seed %d: %s gets %v, %v, expected %v", seed, name, got, err,
						list[oldest])
				}
				reused++
				list[oldest].Name, list[oldest].Released, list[oldest].Revision = name, false, step
			case !errors.Is(err, ErrExhausted):
				t.Fatalf("seed %d: %s gets %v, %v of a full pool", seed, name, got, err)
			default:
				exhausted++
			}
		}
	}
	if exhausted == 0 || reused == 0 || back == 0 {
		t.Errorf("%d times exhausted, %d reused, %d back", exhausted, reused, back)
	}
}

// TestChangedLength: ranges of another length that are in the store are never overlapped.
func TestChangedLength(t *testing.T) {
	p := pool("10.0.0.0/24", 28)
	list := []Owner{
		{Range: netip.MustParsePrefix("10.0.0.0/25"), Name: "wide", Revision: 1},
		{Range: netip.MustParsePrefix("10.0.0.128/30"), Name: "narrow", Revision: 2},
		{Range: netip.MustParsePrefix("10.0.0.192/28"), Name: "gone", Released: true, Revision: 3},
		{Range: netip.MustParsePrefix("10.0.0.64/28"), Name: "inside", Released: true, Revision: 1},
	}
	for i := range 7 {
		got, err := p.Choose(fmt.Sprint("new", i), list)
		for _, o := range list {
			if !o.Released && o.Range.Overlaps(got.Range) {
				t.Fatalf("%v overlaps %v", got.Range, o.Range)
			}
		}
		if want := i == 6; err != nil || (got.Name == "gone") != want {
			t.Fatalf("number %d gets %v, %v", i, got, err)
		}
		list = append(list, Owner{Range: got.Range, Name: fmt.Sprint("new", i), Revision: 9})
		list = slices.DeleteFunc(list, func(o Owner) bool { return o.Released && o == got })
	}
	if got, err := p.Choose("inside", list); !errors.Is(err, ErrExhausted) {
		t.Errorf("a range inside one with an owner was given back: %v, %v", got, err)
	}
	all := []Owner{{Range: netip.MustParsePrefix("10.0.0.0/8"), Name: "wide"}}
	if got, err := p.Choose("a", all); !errors.Is(err, ErrExhausted) {
		t.Errorf("%v, %v inside a range with an owner", got, err)
	}
}

// TestLargePool: a pool of 2^32 ranges is not walked.
func TestLargePool(t *testing.T) {
	p := pool("fd00::/32", 64)
	var list []Owner
	for i := range 5000 {
		list = append(list, Owner{Range: p.at(uint64(i)), Name: fmt.Sprint(i), Revision: 1})
	}
	if got, err := p.Choose("new", list); err != nil || got.Revision != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// together is a store whose first read returns when all hosts have read: every host then chooses
// among the same owners.
type together struct {
	store.Store
	once sync.Once
	all  *sync.WaitGroup
}

func (s *together) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	snapshot, err := s.Store.Read(ctx, name, revision)
	s.once.Do(func() {
		s.all.Done()
		s.all.Wait()
	})
	return snapshot, err
}

// TestClaims: a hundred hosts join at once, each of which has read that no range is owned; some
// leave and return. No range has two owners, every host keeps what it was given.
func TestClaims(t *testing.T) {
	model := storetest.NewModel(time.Minute)
	p := pool("10.0.0.0/16", 23) // 128 ranges
	const hosts = 100
	var all, group sync.WaitGroup
	all.Add(hosts)
	none := func([]netip.Prefix) (store.Txn, error) { return store.Txn{}, nil }
	ranges := make([]netip.Prefix, hosts)
	for i := range hosts {
		group.Go(func() {
			name := fmt.Sprint("host", i)
			s := &together{Store: model, all: &all}
			first, err := claim(t, s, []Pool{p}, name, none)
			if err != nil {
				t.Error(err)
				return
			}
			if i%3 == 0 {
				release(t, s, name)
			}
			again, err := claim(t, s, []Pool{p}, name, none)
			if !slices.Equal(again, first) || len(again) != 1 || err != nil {
				t.Errorf("%s had %v, gets %v, %v", name, first, again, err)
				return
			}
			ranges[i] = again[0]
		})
	}
	group.Wait()
	owner := map[netip.Prefix]int{}
	for i, r := range ranges {
		if other, ok := owner[r]; ok {
			t.Errorf("%v is of %d and %d", r, i, other)
		}
		owner[r] = i
	}
}

// claim is ClaimRanges with the owners that the store has.
func claim(t *testing.T, s store.Store, pools []Pool, name string,
	with func([]netip.Prefix) (store.Txn, error)) ([]netip.Prefix, error) {
	return ClaimRanges(t.Context(), s, func(ctx context.Context) ([]Owner, error) {
		return ReadOwners(ctx, s)
	}, pools, name, with)
}

func release(t *testing.T, s store.Store, name string) {
	owned, err := s.Read(t.Context(), RangeTree, 0)
	if err != nil {
		t.Error(err)
	}
	x, err := ReleaseRanges(owned, name)
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Commit(t.Context(), x); err != nil {
		t.Error(err)
	}
}

// TestClaimWithMore: what belongs to the same transaction is made with the claim or not at all.
func TestClaimWithMore(t *testing.T) {
	s := storetest.NewModel(time.Minute)
	pools := []Pool{pool("10.0.0.0/16", 24), pool("fd00::/48", 64)}
	invited := func(r []netip.Prefix) (store.Txn, error) {
		return store.Txn{Compare: []store.Compare{{Key: NodeTree + "a"}},
			Put: []store.Entry{{Key: NodeTree + "a", Value: fmt.Append(nil, r)}}}, nil
	}
	r, err := claim(t, s, pools, "a", invited)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(t.Context(), NodeTree+"a", 0)
	if err != nil || len(got.Entries) != 1 || string(got.Entries[0].Value) != fmt.Sprint(r) ||
		len(r) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := claim(t, s, pools, "a", invited); !errors.Is(err,
		store.ErrConflict) {
		t.Errorf("a second host of the name joined: %v", err)
	}
}

// TestChooseAmongManyReleased: the range that was released first is found among a hundred thousand.
// Each was released before the one that comes earlier in the pool, and a former length of ranges
// takes every second one. With a search through all for each, this takes minutes.
func TestChooseAmongManyReleased(t *testing.T) {
	p := Pool{Supernet: netip.MustParsePrefix("10.0.0.0/8"), Bits: 25}
	const count = 1 << 17
	var owners []Owner
	for i := range uint64(count) {
		owners = append(owners, Owner{Range: p.at(i), Name: "gone", Released: true,
			Revision: int64(count - i)})
		if i%2 == 1 {
			half := netip.PrefixFrom(p.at(i).Addr(), 26)
			owners = append(owners, Owner{Range: half, Name: "former"})
		}
	}
	got, err := p.Choose("new", owners)
	if want := p.at(count - 2); err != nil || got.Range != want || got.Revision != 2 {
		t.Errorf("%+v, %v; the one that was released first is %v", got, err, want)
	}
	owners = slices.DeleteFunc(owners, func(o Owner) bool { return o.Range == p.at(count-2) })
	owners = append(owners, Owner{Range: p.at(count - 2), Name: "has"})
	if got, err = p.Choose("new", owners); err != nil || got.Range != p.at(count-4) {
		t.Errorf("%+v, %v; the next one is %v", got, err, p.at(count-4))
	}
}
