package members_test

import (
	"crypto/ed25519"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// lose deletes all that the store has of a host, and frees its ranges, as an attacker does, or a
// backup of before.
func (f *founded) lose(t *testing.T, name string) {
	t.Helper()
	all, err := f.model.Read(t.Context(), cluster.RangeTree, 0)
	if err != nil {
		t.Fatal(err)
	}
	txn := store.Txn{Delete: []string{cluster.NodeTree + name}}
	for _, e := range all.Entries {
		if strings.Contains(string(e.Value), `"`+name+`"`) {
			txn.Delete = append(txn.Delete, e.Key)
		}
	}
	e, _ := f.value(t, cluster.MembersKey) // every joiner reads again
	txn.Put = []store.Entry{{Key: e.Key, Value: e.Value}}
	if _, err := f.model.Commit(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
}

// TestNameOfADeletedHost: an attacker in the store with a token has deleted the certificate of a
// host, or put it back. The attacker gets neither the name nor the ranges nor the key of that host.
// The host itself can join again, and ends what it had.
func TestNameOfADeletedHost(t *testing.T) {
	f := found(t, pool("10.0.0.0/28", 29)) // of two ranges
	first := f.join(t, "b")
	b, before := f.node(t, "b")
	again := f.joining(t, f.invite(t, members.Invitation{}), "b")
	again.Old = first.Credential.Key
	second, err := again.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now, _ := f.node(t, "b")
	attacker := func() string {
		t.Helper()
		j := f.joining(t, f.invite(t, members.Invitation{}), "b")
		j.Old = first.Credential.Key
		if _, err = j.Do(t.Context()); err == nil {
			t.Fatal("the attacker has joined as b")
		}
		return err.Error()
	}
	f.lose(t, "b")
	if why := attacker(); !strings.Contains(why, "member already") {
		t.Error(why)
	}
	f.write(t, before.Key, before.Value)
	if why := attacker(); !strings.Contains(why, "member already") {
		t.Error(why)
	}
	f.lose(t, "b")
	j := f.joining(t, f.invite(t, members.Invitation{}), "c")
	j.Key, j.WireGuardKey = second.Credential.Key, [32]byte(now.WireGuard)
	if _, err = j.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "of host b") {
		t.Errorf("with the key of b: %v", err)
	}
	f.join(t, "c")
	if c, _ := f.node(t, "c"); c.Ranges[0] == now.Ranges[0] {
		t.Errorf("another host gets %v, the range of b", c.Ranges)
	}
	j = f.joining(t, f.invite(t, members.Invitation{}), "b")
	j.Old = second.Credential.Key
	if _, err = j.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, _ := f.node(t, "b")
	if !slices.Equal(last.Replaces, []cluster.Serial{b.Serial, now.Serial}) ||
		!slices.Equal(last.Ranges, now.Ranges) {
		t.Errorf("b has %v and ends %v, after %v and %v", last.Ranges, last.Replaces, now.Ranges,
			now.Replaces)
	}
}

// TestDeletedHostIsRemoved: a host whose certificate the store has lost can be removed, once, and
// then its name is free.
func TestDeletedHostIsRemoved(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	b, _ := f.node(t, "b")
	f.lose(t, "b")
	by := f.remover()
	if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
		t.Fatal(err)
	}
	if ended := f.revokedNow(t); !slices.Equal(ended, []cluster.Serial{b.Serial}) {
		t.Errorf("the store names %v as removed, not %v", ended, b.Serial)
	}
	if err := members.Remove(t.Context(), f.model, "b", by); err == nil {
		t.Error("it is removed twice")
	}
	f.join(t, "b")
}

// TestNameOfARevokedHost: without the rules lock an attacker in the store can write a removal
// record, which ends a certificate. It does not free the name, nor the ranges, also if the record
// of another host, which the CA signs later, has the serial number. The host itself can join again.
func TestNameOfARevokedHost(t *testing.T) {
	f := found(t, pool("10.0.0.0/29", 30)) // of two ranges
	first := f.join(t, "b")
	b, _ := f.node(t, "b")
	for _, name := range []string{"b", "c"} {
		value, err := cluster.Encode(&cluster.RemovalRecord{Serials: []cluster.Serial{b.Serial}})
		if err != nil {
			t.Fatal(err)
		}
		f.write(t, cluster.RemovedTree+"node/"+name, value)
	}
	f.lose(t, "b")
	c := f.join(t, "c")
	if c.Ranges[0] == b.Ranges[0] {
		t.Errorf("another host gets %v, the range of b", c.Ranges)
	}
	if err := members.Remove(t.Context(), f.model, "c", f.remover()); err != nil {
		t.Fatal(err)
	}
	j := f.joining(t, f.invite(t, members.Invitation{}), "b")
	if _, err := j.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "member already") {
		t.Fatalf("an attacker joins as b: %v", err)
	}
	j.Old = first.Credential.Key
	if _, err := j.Do(t.Context()); err != nil {
		t.Errorf("b itself: %v", err)
	}
}

// TestRemovedWithoutTheCA: a removal where the CA's key is not ends the certificate. The name is
// free after a removal where that key is.
func TestRemovedWithoutTheCA(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	b, _ := f.node(t, "b")
	by := f.remover()
	by.CAKey = nil
	if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
		t.Fatal(err)
	}
	if ended := f.revokedNow(t); !slices.Equal(ended, []cluster.Serial{b.Serial}) {
		t.Errorf("the store names %v as removed, not %v", ended, b.Serial)
	}
	j := f.joining(t, f.invite(t, members.Invitation{}), "b")
	if _, err := j.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "the CA's key") {
		t.Errorf("another host joins by the name: %v", err)
	}
	by.Bound = f.certificates()
	if err := members.Remove(t.Context(), f.model, "b", by); err == nil {
		t.Error("it is removed twice without the CA's key")
	}
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Do(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestJoinIsSaved: a host that gets its certificate is bound to its name on the disk: a store host
// that crashes does not forget that.
func TestJoinIsSaved(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.saved["b"]; !there {
		t.Errorf("only %v are on the disk", f.saved)
	}
}

// TestSecondCertificateOfAName: of two certificates of a name that the CA has signed, a store host
// keeps the first, unless the second replaces it. An attacker in the store may have joined by the
// name at a store host that had not seen the first.
func TestSecondCertificateOfAName(t *testing.T) {
	ca, err := identity.NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	keys := []cluster.Key{cluster.Key(ca.Key().Public().(ed25519.PublicKey))}
	signed := func(serial byte, replaces ...cluster.Serial) store.Change {
		t.Helper()
		n := cluster.Node{Name: "b", Serial: cluster.Serial{serial}, TLS: cluster.Key{serial},
			WireGuard: cluster.Key{serial}, Replaces: replaces,
			Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24")}}
		if err := n.Sign(ca.Key()); err != nil {
			t.Fatal(err)
		}
		value, err := cluster.Encode(&n)
		if err != nil {
			t.Fatal(err)
		}
		return store.Change{Entry: store.Entry{Key: cluster.NodeTree + "b", Value: value}}
	}
	all := members.Certificates{}
	for _, c := range []struct {
		change store.Change
		want   byte
	}{{signed(1), 1}, {signed(2), 1}, {signed(3, cluster.Serial{1}), 3}, {signed(1), 3}} {
		all.Note([]store.Change{c.change}, keys, func(cluster.Serial) bool { return false })
		if got := all["b"].Serial; got != (cluster.Serial{c.want}) {
			t.Errorf("the certificate %v is kept, not %d", got, c.want)
		}
	}
}
