package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
)

// maxPoolBits limits a pool to 2^32 ranges.
const maxPoolBits = 32

// Pool is a supernet that is given out in ranges of one length.
type Pool struct {
	Supernet netip.Prefix `json:"supernet"`
	Bits     int          `json:"bits"` // length of a range
}

// Owner is the owner of a range, or the last one. It is a reservation, not a lease: nothing but a
// removal of the host releases it. A released range stays known, so that its host gets it back and
// others get it last.
type Owner struct {
	Range    netip.Prefix `json:"-"`
	Name     string       `json:"name"`
	Released bool         `json:"released,omitempty"`
	Revision int64        `json:"-"` // of the key; of a released range, that of its release
}

// Check returns an error for a pool that cannot be given out.
func (p Pool) Check() error {
	free := p.Bits - p.Supernet.Bits()
	switch {
	case !p.Supernet.IsValid() || p.Supernet != p.Supernet.Masked():
		return fmt.Errorf("%v is not a network", p.Supernet)
	case free < 0 || p.Bits > p.Supernet.Addr().BitLen():
		return fmt.Errorf("ranges of /%d do not fit into %v", p.Bits, p.Supernet)
	case free > maxPoolBits:
		return fmt.Errorf("%v has 2^%d ranges of /%d, at most 2^%d are possible: use a smaller "+
			"network", p.Supernet, free, p.Bits, maxPoolBits)
	}
	return nil
}

// ErrExhausted is the error of a pool without a free range.
var ErrExhausted = errors.New("every range has an owner")

// Choose returns the range for a host: the one that it has, or had, else one that no host had, else
// the one that was released first. owners are those of all ranges, in any order. What is returned
// is the owner as it is in the store: Revision is what a claim compares, 0 when the key must not
// exist.
//
// The search for one that no host had begins at a place that the name gives, so that hosts that
// join at once seldom want the same one.
func (p Pool) Choose(name string, owners []Owner) (Owner, error) {
	if err := p.Check(); err != nil {
		return Owner{}, err
	}
	taken := p.taken(owners)
	var own, oldest *Owner
	for i := range owners {
		o := &owners[i]
		if o.Range.Bits() != p.Bits || !p.Supernet.Contains(o.Range.Addr()) {
			continue
		}
		if o.Name == name && (own == nil || better(o, own)) {
			own = o
		}
		older := oldest == nil || o.Revision < oldest.Revision ||
			o.Revision == oldest.Revision && o.Range.Addr().Less(oldest.Range.Addr())
		if o.Released && older && !taken(o.Range) {
			oldest = o
		}
	}
	if own != nil && (!own.Released || !taken(own.Range)) {
		return *own, nil
	}
	if r, ok := p.unused(name, owners); ok {
		return Owner{Range: r}, nil
	}
	if oldest != nil {
		return *oldest, nil
	}
	return Owner{}, fmt.Errorf("%v in ranges of /%d: %w: remove hosts or add a network",
		p.Supernet, p.Bits, ErrExhausted)
}

// better prefers a range that is not released, then the smaller address. A host has one range of a
// pool, but the answer must not depend on the order of owners.
func better(a, b *Owner) bool {
	if a.Released != b.Released {
		return !a.Released
	}
	return a.Range.Addr().Less(b.Range.Addr())
}

// taken returns what reports whether a range of another length that overlaps a range of the pool
// has an owner: the length of a cluster's ranges was changed.
func (p Pool) taken(owners []Owner) func(netip.Prefix) bool {
	var others []Owner
	for _, o := range owners {
		if !o.Released && o.Range.Bits() != p.Bits {
			others = append(others, o)
		}
	}
	var apart []indexes
	for _, u := range p.usedIndexes(others) {
		if n := len(apart); n > 0 && u.first <= apart[n-1].last {
			apart[n-1].last = max(apart[n-1].last, u.last)
			continue
		}
		apart = append(apart, u)
	}
	return func(r netip.Prefix) bool {
		_, found := slices.BinarySearchFunc(apart, p.index(r.Addr()),
			func(u indexes, at uint64) int {
				switch {
				case u.last < at:
					return -1
				case u.first > at:
					return 1
				}
				return 0
			})
		return found
	}
}

// unused returns the first range from the name's place on that overlaps none that was ever owned.
func (p Pool) unused(name string, owners []Owner) (netip.Prefix, bool) {
	used := p.usedIndexes(owners)
	count := uint64(1) << (p.Bits - p.Supernet.Bits())
	sum := sha256.Sum256([]byte(name))
	begin := binary.BigEndian.Uint64(sum[:]) % count
	for _, from := range []uint64{begin, 0} {
		at := from
		for _, u := range used {
			if u.last < at {
				continue
			}
			if u.first > at {
				break
			}
			at = u.last + 1
		}
		if at < count {
			return p.at(at), true
		}
	}
	return netip.Prefix{}, false
}

// indexes are the ranges of a pool from first to last.
type indexes struct{ first, last uint64 }

// usedIndexes returns what was ever owned, ordered. Parts may overlap.
func (p Pool) usedIndexes(owners []Owner) (used []indexes) {
	for _, o := range owners {
		if !o.Range.Overlaps(p.Supernet) {
			continue
		}
		first, wide := uint64(0), p.Bits-max(o.Range.Bits(), p.Supernet.Bits())
		if o.Range.Bits() > p.Supernet.Bits() {
			first = p.index(o.Range.Addr())
		}
		used = append(used, indexes{first, first + uint64(1)<<max(wide, 0) - 1})
	}
	slices.SortFunc(used, func(a, b indexes) int { return cmp.Compare(a.first, b.first) })
	return used
}

// index returns which range an address of the supernet is in: the bits between both lengths.
func (p Pool) index(a netip.Addr) (n uint64) {
	bytes := a.AsSlice()
	for bit := p.Supernet.Bits(); bit < p.Bits; bit++ {
		n = n<<1 | uint64(bytes[bit/8]>>(7-bit%8)&1)
	}
	return n
}

// at is the opposite of index.
func (p Pool) at(n uint64) netip.Prefix {
	bytes := p.Supernet.Addr().AsSlice()
	for bit := p.Bits - 1; bit >= p.Supernet.Bits(); bit-- {
		bytes[bit/8] |= byte(n&1) << (7 - bit%8)
		n >>= 1
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, p.Bits)
}

// Owners reads the owners of ranges. What is not a range has none, and a range with a value that
// cannot be read has one without a name. What an attacker in the store has written there must not
// keep hosts from being removed.
func Owners(s store.Snapshot) (list []Owner) {
	for _, e := range s.Entries {
		r, err := parseRangeKey(e.Key)
		if err != nil {
			continue
		}
		var o Owner
		if json.Unmarshal(e.Value, &o) != nil {
			o = Owner{}
		}
		o.Range, o.Revision = r, e.Revision
		list = append(list, o)
	}
	return list
}

// ClaimRanges gives a host its range of each pool and returns them. owners returns those of all
// ranges, as ReadOwners does or as the caller knows them: a claim compares their revisions. with
// adds what belongs to the same transaction, such as the host's certificate and the use of its
// invitation, when it gets the ranges. Claim tries again when another host was faster, and returns
// the conflict when a comparison of with failed.
func ClaimRanges(ctx context.Context, s store.Store,
	owners func(context.Context) ([]Owner, error), pools []Pool, name string,
	with func([]netip.Prefix) (store.Txn, error)) ([]netip.Prefix, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for {
		all, err := owners(ctx)
		if err != nil {
			return nil, err
		}
		chosen, ranges := make([]Owner, len(pools)), make([]netip.Prefix, len(pools))
		for i, p := range pools {
			if chosen[i], err = p.Choose(name, all); err != nil {
				return nil, err
			}
			ranges[i] = chosen[i].Range
		}
		t, err := with(ranges)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(Owner{Name: name})
		if err != nil {
			return nil, err
		}
		for _, o := range chosen {
			key := RangeKey(o.Range)
			t.Compare = append(t.Compare, store.Compare{Key: key, Revision: o.Revision})
			t.Put = append(t.Put, store.Entry{Key: key, Value: value})
		}
		_, err = s.Commit(ctx, t)
		var conflict *store.ConflictError
		if errors.As(err, &conflict) && strings.HasPrefix(conflict.Key, RangeTree) {
			continue
		}
		return ranges, err
	}
}

// ReadOwners reads the owners of all ranges.
func ReadOwners(ctx context.Context, s store.Store) ([]Owner, error) {
	got, err := s.Read(ctx, RangeTree, 0)
	return Owners(got), err
}

// ReleaseRanges returns what removes a host's right to its ranges; the ranges stay known as
// released. all is the subtree of ranges as it was read.
func ReleaseRanges(all store.Snapshot, name string) (t store.Txn, err error) {
	value, err := json.Marshal(Owner{Name: name, Released: true})
	if err != nil {
		return t, err
	}
	for _, o := range Owners(all) {
		if o.Name == name && !o.Released {
			key := RangeKey(o.Range)
			t.Compare = append(t.Compare, store.Compare{Key: key, Revision: o.Revision})
			t.Put = append(t.Put, store.Entry{Key: key, Value: value})
		}
	}
	return t, nil
}
