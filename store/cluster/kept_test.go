package cluster

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestKeptIsBounded: the last good values of what is refused are kept up to a size. Beyond that, a
// table or pods whose value is refused count as empty, as if the attacker had written that. When
// the store has a good value again, there is space for others.
func TestKeptIsBounded(t *testing.T) {
	a := newAuthority()
	d := NewDesired("a", a.trust, nil)
	d.Apply([]store.Change{put(t, NodeTree+"b", a.node(t, "b", "10.0.2.0/24"))})
	member, addr := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParseAddr("10.0.2.1")
	bucket := func(table string) store.Change {
		return put(t, BucketKey(table, member), &Members{Members: []Member{{member, 7}}})
	}
	pods := put(t, PodsTree+"b/0000", podOf("10.0.2.1", "app=web"))
	garbage := func(ch store.Change) store.Change {
		ch.Value = []byte("garbage")
		return ch
	}
	one, two := bucket("one"), bucket("two")
	d.Apply([]store.Change{one, two, pods})
	d.maxKept = one.Cost()
	if e := d.Apply([]store.Change{garbage(one)}); len(e.Shared) > 0 || len(e.Claims) != 1 {
		t.Errorf("one that is kept: %+v", e)
	}
	e := d.Apply([]store.Change{garbage(one), garbage(two), garbage(pods)})
	if value, changed := e.Shared[SharedMember{"two", member}]; len(e.Claims) != 3 ||
		len(e.Shared) != 1 || !changed || value != nil || len(e.Labels) != 1 ||
		e.Labels[Label{"app=web", addr}] {
		t.Errorf("too many: %+v", e)
	}
	if good := d.LastGood(); len(good) != 1 || good[0].Key != one.Key {
		t.Errorf("kept: %v", good)
	}
	again := NewDesired("a", d.Trust(), nil)
	again.maxKept = d.maxKept
	again.Load(d.LastGood(), []store.Entry{garbage(one).Entry, garbage(two).Entry})
	if good := again.LastGood(); len(good) != 1 || again.keptSize != d.keptSize {
		t.Errorf("after a start: %v", good)
	}
	if e := d.Apply([]store.Change{one, two, pods}); len(e.Shared) != 1 || len(e.Labels) != 1 ||
		d.keptSize != 0 {
		t.Errorf("they are good again: %+v, %d bytes", e, d.keptSize)
	}
	if e := d.Apply([]store.Change{garbage(two)}); len(e.Shared) > 0 {
		t.Errorf("another one that is kept: %+v", e)
	}
}
