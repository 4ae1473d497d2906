package cluster

import (
	"slices"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestReplacedCertificate: a certificate revokes the earlier ones of its host. A stolen store
// cannot put one of them back, neither at a host that has seen it nor at one that came later.
func TestReplacedCertificate(t *testing.T) {
	a := newAuthority()
	first := a.node(t, "b")
	again := func(n *Node, serial byte) *Node {
		next := *n
		next.Serial, next.TLS = Serial{serial}, Key{serial}
		next.Replace(n)
		return a.sign(t, &next)
	}
	second := again(first, 2)
	third := again(second, 3)
	revoked := []Serial{first.Serial, second.Serial}
	slices.SortFunc(revoked, Serial.Compare)
	for name, seen := range map[string][]*Node{"all": {first, second, third},
		"the first": {first, third}, "none": {third}} {
		d := NewDesired("x", a.trust, nil)
		for _, n := range seen {
			if e := d.Apply([]store.Change{put(t, NodeTree+"b", n)}); len(e.Claims) > 0 {
				t.Errorf("saw %s: %v", name, e.Claims)
			}
		}
		if got := d.Revoked(); !slices.Equal(got, revoked) {
			t.Errorf("saw %s: removed %v, expected %v", name, got, revoked)
		}
		for _, n := range []*Node{first, second} {
			e := d.Apply([]store.Change{put(t, NodeTree+"b", n)})
			if got := d.Node("b"); len(e.Claims) != 1 || got == nil || got.Serial != third.Serial {
				t.Errorf("saw %s: an earlier certificate is put back: %v", name, got)
			}
		}
	}
}

// TestCertificateOfAnother: a second certificate of a name does not count while the first one is in
// force, also after a start. It counts once the first one was removed.
func TestCertificateOfAnother(t *testing.T) {
	a := newAuthority()
	first, other := a.node(t, "b", "10.0.2.0/24"), a.node(t, "b", "10.0.2.0/24")
	other.Serial, other.TLS, other.WireGuard = Serial{2}, Key{2}, Key{3}
	change := put(t, NodeTree+"b", a.sign(t, other))
	d := NewDesired("x", a.trust, nil)
	d.Apply([]store.Change{put(t, NodeTree+"b", first)})
	e := d.Apply([]store.Change{change})
	again := NewDesired("x", a.trust, nil)
	again.Load(d.LastGood(), []store.Entry{change.Entry})
	for what, d := range map[string]*Desired{"now": d, "after a start": again} {
		if n := d.Node("b"); n == nil || n.Serial != first.Serial {
			t.Errorf("%s: the host is %v", what, n)
		}
	}
	if len(e.Claims) != 1 {
		t.Errorf("claims: %v", e.Claims)
	}
	d.Apply([]store.Change{put(t, RemovedTree+"node/b",
		&RemovalRecord{Serials: []Serial{first.Serial}})})
	if n := d.Node("b"); n == nil || n.Serial != other.Serial {
		t.Errorf("after the removal: the host is %v", n)
	}
}

// TestReplacesLimit: a host that joins again for ever has a certificate of bounded size, which ends
// the newest of the others.
func TestReplacesLimit(t *testing.T) {
	a := newAuthority()
	n := a.node(t, "b")
	for i := range 2 * maxReplaced {
		next := *n
		next.Serial = Serial{1, byte(i)}
		next.Replace(n)
		n = a.sign(t, &next)
	}
	if err := n.Check(); err != nil || len(n.Replaces) != maxReplaced ||
		n.Replaces[maxReplaced-1] != (Serial{1, 2*maxReplaced - 2}) {
		t.Errorf("%d are replaced: %v", len(n.Replaces), err)
	}
	n.Replaces = append(n.Replaces, Serial{7})
	if n.Check() == nil {
		t.Error("more are replaced than a certificate may name")
	}
}

// TestCertificateUnderAnotherName: an attacker in the store writes the certificate of a host under
// another name before others have seen it. It does not count there, and does where it belongs.
func TestCertificateUnderAnotherName(t *testing.T) {
	a := newAuthority()
	n := a.node(t, "b", "10.0.2.0/24")
	d := NewDesired("x", a.trust, nil)
	e := d.Apply([]store.Change{put(t, NodeTree+"c", n)})
	if d.Node("c") != nil || len(e.Claims) != 1 || len(e.Hosts) > 0 {
		t.Errorf("host c is %v, claims %v", d.Node("c"), e.Claims)
	}
	if e = d.Apply([]store.Change{put(t, NodeTree+"b", n)}); d.Node("b") == nil {
		t.Errorf("host b is not there: %v", e.Claims)
	}
}
