package members_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
)

// revokedNow returns the certificates that a store says are revoked, in order.
func (f *founded) revokedNow(t *testing.T) (all []cluster.Serial) {
	t.Helper()
	s, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Entries {
		all = append(append(all, cluster.RevokedHosts(e, nil, nil)...), cluster.RevokedOthers(e)...)
	}
	slices.SortFunc(all, func(a, b cluster.Serial) int { return bytes.Compare(a[:], b[:]) })
	return all
}

// TestRestoreKeepsRevocations: an old backup gives nothing back that was revoked since: a host that
// was removed, an administrator or a feed that was revoked, a token that was used.
func TestRestoreKeepsRevocations(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	removed, stays := f.join(t, "b").Credential, f.join(t, "bob").Credential
	if _, err := f.connect(t, removed).Commit(t.Context(), put(cluster.PodsTree+"b/0000",
		"1")); err != nil {
		t.Fatal(err)
	}
	token := f.invite(t, members.Invitation{})
	invite, _ := f.value(t, cluster.InviteTree+token.Name())
	var file bytes.Buffer
	if _, _, err := members.Backup(t.Context(), f.model, &file); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(file.String(), cluster.InviteTree) {
		t.Error("who reads the backup may join")
	}
	entries, err := members.ReadBackup(&file)
	if err != nil {
		t.Fatal(err)
	}
	entries = append(entries, invite)
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Fatal(err)
	}
	f.revoke(t, "admin:a")
	revoked := f.revokedNow(t)
	if len(revoked) != 2 {
		t.Fatalf("%d certificates are revoked", len(revoked))
	}
	before := members.PriorState{RevokedHosts: revoked, RevokedOthers: revoked}
	s := storetest.NewModel(time.Second)
	if _, err := restore(t, s, entries, before, nil); err != nil {
		t.Fatal(err)
	}
	restored := &founded{model: s}
	get := server.Get(func(key string) (store.Entry, bool) { return restored.value(t, key) })
	for what, one := range map[string]struct {
		credential *identity.Credential
		in         bool
	}{"removed": {removed, false}, "revoked": {f.admin, false}, "stays": {stays, true}} {
		p, err := one.credential.Peer()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := members.Admit(get, p); (err == nil) != one.in {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, key := range []string{cluster.InviteTree + token.Name(), cluster.PodsTree + "b/0000"} {
		if _, ok := get(key); ok {
			t.Errorf("%s is back", key)
		}
	}
	if now := restored.revokedNow(t); !slices.Equal(now, revoked) {
		t.Errorf("the restored store names %v, want %v", now, revoked)
	}
	all, err := s.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Entries {
		own := strings.HasPrefix(e.Key, cluster.RangeTree) &&
			strings.Contains(string(e.Value), `"b"`)
		if own && !strings.Contains(string(e.Value), "released") {
			t.Errorf("%s = %s", e.Key, e.Value)
		}
	}
}

// revoke takes the certificates of an identity out of force, as weir-store does.
func (f *founded) revoke(t *testing.T, id string) {
	t.Helper()
	e, _ := f.value(t, cluster.IssuedKey)
	issued, err := cluster.Decode[cluster.Issued](e.Value)
	if err != nil {
		t.Fatal(err)
	}
	if issued.Revoke(func(c cluster.IssuedCertificate) bool { return c.ID == id }) == 0 {
		t.Fatalf("%s has no certificate", id)
	}
	value, err := cluster.Encode(&issued)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.model.Commit(t.Context(), put(cluster.IssuedKey, string(value))); err != nil {
		t.Fatal(err)
	}
}
