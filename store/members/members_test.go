package members_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// TestCreateCluster: a store has one cluster.
func TestCreateCluster(t *testing.T) {
	f := found(t)
	peer, err := f.admin.Peer()
	if err != nil {
		t.Fatal(err)
	}
	if err := members.CreateCluster(t.Context(), f.model, f.id, peer); !errors.Is(err,
		members.ErrExists) {
		t.Errorf("a second cluster: %v", err)
	}
	if _, err := f.connect(t, f.admin).Commit(t.Context(), put(cluster.HeadKey, "1")); err != nil {
		t.Errorf("the administrator: %v", err)
	}
}

// TestJoin: a host joins with one command, gets a range of each pool, and may do what a host may.
// Its certificate carries the CA's signature, and the token is used up.
func TestJoin(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24), pool("fd00::/48", 64))
	token := f.invite(t, members.Invitation{Roles: []string{"web"}, Labels: []string{"app"}})
	j := f.joining(t, token, "b")
	joined, err := j.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(joined.Ranges) != 2 || joined.Ranges[0].Bits() != 24 || joined.Ranges[1].Bits() != 64 ||
		!slices.Equal(joined.Stores, []string{f.address}) || joined.Cluster != f.id.ID.String() {
		t.Errorf("joined: %+v", joined.JoinAnswer)
	}
	if one, two := (cluster.Serial{7}), (cluster.Serial{8}); !slices.Equal(joined.Revoked,
		slices.Concat(one[:], two[:])) {
		t.Errorf("of revoked certificates it knows %x", joined.Revoked)
	}
	e, _ := f.value(t, cluster.NodeTree+"b")
	node, err := cluster.Decode[cluster.Node](e.Value)
	if err != nil || string(e.Value) != string(joined.Node) {
		t.Fatalf("%s: %v", e.Value, err)
	}
	key, err := identity.CAKey(f.ca.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Verify([]cluster.Key{cluster.Key(key)}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(node.Roles, []string{"web"}) || !slices.Equal(node.Labels, []string{"app"}) {
		t.Errorf("roles %v, labels %v", node.Roles, node.Labels)
	}
	host := f.connect(t, joined.Credential)
	if _, err := host.Commit(t.Context(), put(cluster.EndpointKey+"b", "1")); err != nil {
		t.Errorf("its endpoints: %v", err)
	}
	if _, ok := f.value(t, cluster.InviteTree+token.Name()); ok {
		t.Error("the token is still there")
	}
	again := f.joining(t, token, "c")
	if _, err := again.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("a second host with the token: %v", err)
	}
}

// TestJoinRefused: who does not get in, and that no token is spent by it.
func TestJoinRefused(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	before, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	token := f.invite(t, members.Invitation{})
	forged := token
	forged.Secret[0] ^= 1
	other := token
	other.CA[0] ^= 1
	attacker := f.joining(t, token, "b")
	attacker.Old = attacker.Key
	e, _ := f.value(t, cluster.NodeTree+"b")
	victim, err := cluster.Decode[cluster.Node](e.Value)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, both := f.joining(t, token, "a"), f.joining(t, token, "a")
	tunnel.WireGuardKey = victim.WireGuard
	both.WireGuardKey = victim.TLS
	for what, j := range map[string]client.Join{
		"a wrong secret":                     f.joining(t, forged, "c"),
		"another cluster's token":            f.joining(t, other, "c"),
		"a name in use":                      f.joining(t, token, "b"),
		"a name in use, signed by a new key": attacker,
		"the tunnel's key of another host":   tunnel,
		"another key of another host":        both,
		"a name that is a subtree":           f.joining(t, token, "c/d"),
		"a name of an ID":                    f.joining(t, token, "admin:a"),
	} {
		if _, err := j.Do(t.Context()); err == nil {
			t.Errorf("%s: joined", what)
		}
	}
	after, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Entries) != len(before.Entries)+1 {
		t.Errorf("%d entries and a token became %d", len(before.Entries), len(after.Entries))
	}
	if _, err := f.joining(t, token, "c").Do(t.Context()); err != nil {
		t.Errorf("the token was spent: %v", err)
	}
}

// TestJoinClash: a host whose roles would have clashing rules does not join.
func TestJoinClash(t *testing.T) {
	f := found(t)
	scopes := map[cluster.Scope]cluster.Digest{}
	for _, scope := range []cluster.Scope{cluster.RoleScope("web"), cluster.RoleScope("db")} {
		digest, parts, err := cluster.EncodeText("add 2000 allow tcp from any to any 80\n# " +
			string(scope) + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.model.Commit(t.Context(), store.Txn{Put: parts}); err != nil {
			t.Fatal(err)
		}
		scopes[scope] = digest
	}
	value, err := cluster.Encode(&cluster.Head{Number: cluster.Number{Epoch: 1, Count: 1},
		Scopes: scopes, By: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.model.Commit(t.Context(), put(cluster.HeadKey, string(value))); err != nil {
		t.Fatal(err)
	}
	f.join(t, "b", "web")
	f.join(t, "c", "db")
	both := f.joining(t, f.invite(t, members.Invitation{Roles: []string{"web", "db"}}), "d")
	if _, err := both.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "rule 2000") {
		t.Errorf("a host with clashing roles: %v", err)
	}
}

// TestRejoin: a host that proves its old key gets a new certificate and its range, and the old
// certificate ends at once.
func TestRejoin(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	first := f.join(t, "b")
	old := f.connect(t, first.Credential)
	if _, err := old.Commit(t.Context(), put(cluster.EndpointKey+"b", "1")); err != nil {
		t.Fatal(err)
	}
	j := f.joining(t, f.invite(t, members.Invitation{}), "b")
	j.Old = first.Credential.Key
	second, err := j.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(second.Ranges, first.Ranges) {
		t.Errorf("had %v, gets %v", first.Ranges, second.Ranges)
	}
	if _, err := f.connect(t, second.Credential).Commit(t.Context(), put(cluster.EndpointKey+"b",
		"2")); err != nil {
		t.Errorf("the new certificate: %v", err)
	}
	for range 2 {
		if _, err := old.Commit(t.Context(), put(cluster.EndpointKey+"b", "3")); err == nil {
			t.Error("the old certificate writes")
		}
	}
	peer, err := first.Credential.Peer()
	if err != nil {
		t.Fatal(err)
	}
	e, _ := f.value(t, cluster.NodeTree+"b")
	ca := cluster.Key(f.ca.Key().Public().(ed25519.PublicKey))
	if got := cluster.RevokedHosts(e, []cluster.Key{ca}, nil); !slices.Equal(got,
		[]cluster.Serial{cluster.Serial(peer.Serial)}) {
		t.Errorf("the new certificate ends %v, not %v", got, peer.Serial)
	}
	if got := cluster.RevokedHosts(e, []cluster.Key{{1}}, nil); len(got) > 0 {
		t.Errorf("without the signature of the CA it ends %v", got)
	}
}

// TestRejoinEndsOnlyItsOwn: what a stolen store has in the place of a certificate gets no signature
// of the CA: a host that joins again does not end another one.
func TestRejoinEndsOnlyItsOwn(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	first := f.join(t, "b")
	f.join(t, "c")
	b, _ := f.node(t, "b")
	c, _ := f.node(t, "c")
	forged := b
	forged.Replaces = []cluster.Serial{c.Serial}
	value, err := cluster.Encode(&forged)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, cluster.NodeTree+"b", value)
	j := f.joining(t, f.invite(t, members.Invitation{}), "b")
	j.Old = first.Credential.Key
	if _, err := j.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, _ := f.node(t, "b")
	if !slices.Equal(again.Replaces, []cluster.Serial{b.Serial}) {
		t.Errorf("the CA signs that %v are revoked", again.Replaces)
	}
}

// TestJoinTogether: a hundred hosts join at once with one token. No two ranges are alike.
func TestJoinTogether(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	const hosts = 100
	token := f.invite(t, members.Invitation{Uses: hosts})
	var mu sync.Mutex
	owner := map[netip.Prefix]string{}
	var group sync.WaitGroup
	for i := range hosts {
		group.Go(func() {
			j := f.joining(t, token, fmt.Sprint("h", i))
			joined, err := j.Do(t.Context())
			if err != nil {
				t.Errorf("%s: %v", j.Name, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other, ok := owner[joined.Ranges[0]]; ok {
				t.Errorf("%s and %s have %v", other, j.Name, joined.Ranges[0])
			}
			owner[joined.Ranges[0]] = j.Name
		})
	}
	begin := time.Now()
	group.Wait()
	t.Logf("%d hosts joined in %v", len(owner), time.Since(begin))
	if _, ok := f.value(t, cluster.InviteTree+token.Name()); ok {
		t.Error("the token is still there")
	}
}

// TestRemove: a host that is removed loses its connection, its certificate and its entries at once,
// also if its pods need several transactions. Its range stays known.
func TestRemove(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	joined := f.join(t, "b")
	other := f.connect(t, f.join(t, "bob").Credential)
	host := f.connect(t, joined.Credential)
	for i := range 120 {
		if _, err := host.Commit(t.Context(), put(fmt.Sprintf("%sb/%04d", cluster.PodsTree, i),
			"1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Commit(t.Context(), put(cluster.PodsTree+"bob/0000", "1")); err != nil {
		t.Fatal(err)
	}
	following := make(chan error, 10)
	go host.Follow(t.Context(), client.Follow{
		Copy:   func() *store.Copy { return store.NewCopy(store.Snapshot{}) },
		Step:   func(store.Batch) error { return nil },
		Failed: func(err error) { following <- err },
	})
	storetest.Eventually(t, "it follows", func() bool {
		return f.server.Counters.Differences.Load() > 0
	})
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-following: // a connection that the removal does not end stays for ever
	case <-time.After(testTimeout):
		t.Fatal("following does not end")
	}
	if _, err := host.Commit(t.Context(), put(cluster.EndpointKey+"b", "9")); !errors.Is(err,
		store.ErrPermission) {
		t.Errorf("it writes again: %v", err)
	}
	all, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Entries {
		of := strings.Split(strings.TrimPrefix(e.Key, cluster.Root), "/")
		if slices.Contains(of, "b") && of[1] != "removed" {
			t.Errorf("left: %s", e.Key)
		}
	}
	if _, ok := f.value(t, cluster.PodsTree+"bob/0000"); !ok {
		t.Error("the pods of another host are gone")
	}
	if e, _ := f.value(t, cluster.RangeKey(joined.Ranges[0])); !strings.Contains(string(e.Value),
		`"released":true`) {
		t.Errorf("its range: %s", e.Value)
	}
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err == nil {
		t.Error("a host is removed twice")
	}
	if back := f.join(t, "b"); !slices.Equal(back.Ranges, joined.Ranges) {
		t.Errorf("it had %v, and gets %v", joined.Ranges, back.Ranges)
	}
}

// TestRemovedBeforeItIsKnown: a removal that weir-store has not heard of ends what the host may
// write all the same.
func TestRemovedBeforeItIsKnown(t *testing.T) {
	f := found(t)
	host := f.connect(t, f.join(t, "b").Credential)
	if _, err := host.Commit(t.Context(), put(cluster.EndpointKey+"b", "1")); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		name := fmt.Sprint("h", i)
		host := f.connect(t, f.join(t, name).Credential)
		if _, err := host.Commit(t.Context(), put(cluster.EndpointKey+name, "1")); err != nil {
			t.Fatal(err)
		}
		var removed, written int64
		var group sync.WaitGroup
		group.Go(func() {
			for {
				r, err := host.Commit(context.Background(), put(cluster.ReportTree+name, "1"))
				if err != nil {
					return
				}
				written = r
			}
		})
		if err := members.Remove(t.Context(), f.model, name, f.remover()); err != nil {
			t.Fatal(err)
		}
		e, _ := f.value(t, cluster.RemovedTree+"node/"+name)
		removed = e.Revision
		group.Wait()
		if written > removed {
			t.Fatalf("removed at %d, written at %d", removed, written)
		}
	}
}

// TestExpiry: a token ends after its time, by the process's own timer, and not before.
func TestExpiry(t *testing.T) {
	f := found(t)
	now := time.Unix(0, 0)
	x := &members.TokenExpiry{Store: f.model, Now: func() time.Time { return now },
		Log: func(err error) { t.Error(err) }}
	sweep := func() {
		t.Helper()
		if err := x.DeleteExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := f.invite(t, members.Invitation{})
	sweep()
	now = now.Add(59 * time.Minute)
	second := f.invite(t, members.Invitation{})
	sweep()
	if _, ok := f.value(t, cluster.InviteTree+first.Name()); !ok {
		t.Error("it ended early")
	}
	now = now.Add(time.Minute)
	sweep()
	if _, ok := f.value(t, cluster.InviteTree+first.Name()); ok {
		t.Error("it does not end")
	}
	if _, ok := f.value(t, cluster.InviteTree+second.Name()); !ok {
		t.Error("the other one ended early")
	}
}
