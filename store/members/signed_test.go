package members_test

import (
	"crypto/ed25519"
	"slices"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// signing returns what the administrator signs removals with, and a host that demands that.
func (f *founded) signing(t *testing.T) (members.Signing, *cluster.Desired) {
	t.Helper()
	key := f.admin.Key
	authority, err := identity.CAKey(f.ca.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	admins := []cluster.Key{cluster.Key(key.Public().(ed25519.PublicKey))}
	by := members.Signing{Key: key, CA: []cluster.Key{cluster.Key(authority)}, Admins: admins,
		CAKey: f.ca.Key()}
	trust := cluster.Trust{Cluster: f.id.ID, Epoch: 1, CA: by.CA,
		Admins: cluster.KeyList{Count: 1, Keys: admins}}
	return by, cluster.NewDesired("x", trust, nil)
}

// apply hands a host all that the store has.
func (f *founded) apply(t *testing.T, host *cluster.Desired) {
	t.Helper()
	all, err := f.model.Read(t.Context(), cluster.Watched, 0)
	if err != nil {
		t.Fatal(err)
	}
	var changes []store.Change
	for _, e := range all.Entries {
		changes = append(changes, store.Change{Entry: e})
	}
	host.Apply(changes)
}

// node returns the certificate of a host, and its entry.
func (f *founded) node(t *testing.T, name string) (cluster.Node, store.Entry) {
	t.Helper()
	e, _ := f.value(t, cluster.NodeTree+name)
	n, err := cluster.Decode[cluster.Node](e.Value)
	if err != nil {
		t.Fatal(err)
	}
	return n, e
}

// write writes into the store as an attacker does.
func (f *founded) write(t *testing.T, key string, value []byte) {
	t.Helper()
	if _, err := f.model.Commit(t.Context(), put(key, string(value))); err != nil {
		t.Fatal(err)
	}
}

// TestSignedRemovalRemovesOne: whatever a stolen store has of a host, an administrator signs the
// removal of that host, and of no other.
func TestSignedRemovalRemovesOne(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	f.join(t, "c")
	by, host := f.signing(t)
	f.apply(t, host)
	b, node := f.node(t, "b")
	c, other := f.node(t, "c")

	f.write(t, cluster.NodeTree+"b", other.Value)
	if err := members.Remove(t.Context(), f.model, "b", by); err == nil {
		t.Error("the certificate of c is removed as that of b")
	}
	forged := b
	forged.Serial = c.Serial
	value, err := cluster.Encode(&forged)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, cluster.NodeTree+"b", value)
	if err := members.Remove(t.Context(), f.model, "b", by); err == nil {
		t.Error("a certificate that the CA did not sign is removed")
	}
	f.write(t, cluster.NodeTree+"b", node.Value)

	record := &cluster.RemovalRecord{Serials: []cluster.Serial{c.Serial}}
	if value, err = cluster.Encode(record); err != nil {
		t.Fatal(err)
	}
	f.write(t, cluster.RemovedTree+"node/b", value)
	if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
		t.Fatal(err)
	}
	f.apply(t, host)
	if !slices.Equal(host.Revoked(), []cluster.Serial{b.Serial}) || host.Node("c") == nil {
		t.Errorf("removed: %v", host.Revoked())
	}

	// What an administrator has signed stays.
	f.join(t, "b")
	b, _ = f.node(t, "b")
	if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
		t.Fatal(err)
	}
	f.apply(t, host)
	if got := host.Revoked(); len(got) != 2 || !slices.Contains(got, b.Serial) {
		t.Errorf("removed in all: %v", got)
	}
}

// TestRemovalWithoutAdmins: an administrator signs the removal of one host, also where it is not
// known whose signatures hosts believe: an attacker has deleted the keys.
func TestRemovalWithoutAdmins(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	f.join(t, "c")
	by, host := f.signing(t)
	by.Admins = nil
	b, _ := f.node(t, "b")
	c, _ := f.node(t, "c")
	value, err := cluster.Encode(&cluster.RemovalRecord{Serials: []cluster.Serial{c.Serial}})
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, cluster.RemovedTree+"node/b", value)
	if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
		t.Fatal(err)
	}
	f.apply(t, host)
	if got := host.Revoked(); !slices.Equal(got, []cluster.Serial{b.Serial}) {
		t.Errorf("removed: %v, not %v", got, b.Serial)
	}
}
