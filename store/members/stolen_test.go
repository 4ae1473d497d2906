package members_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/wire"
)

// mayWrite are the keys that host b may write.
func mayWrite(key string) bool {
	return key == cluster.EndpointKey+"b" || strings.HasPrefix(key, cluster.PodsTree+"b/") ||
		key == cluster.ReportTree+"b"
}

// everyKey is each key that exists, and some that look like others.
func everyKey(all store.Snapshot) (keys []string) {
	for _, e := range all.Entries {
		keys = append(keys, e.Key, e.Key+"/x", e.Key+"x", strings.Replace(e.Key, "/bob", "/b", 1),
			strings.Replace(e.Key, "/weir/1/", "/weir/1//", 1), strings.ToUpper(e.Key))
	}
	return append(keys, cluster.Root+"y", "/weir/2/w/head", "w/head", "x", cluster.PodsTree+"b",
		cluster.PodsTree+"bob/../b/0", cluster.PodsTree+"b\x00ob/0", cluster.EndpointKey+"b/x",
		cluster.EndpointKey, cluster.NodeTree+"b", cluster.RemovedTree+"node/bob",
		cluster.ReportTree+"bob", cluster.InviteTree+"z", cluster.TextTree+"z/0000",
		cluster.TableTree+"web/00", cluster.IssuedKey)
}

// full is a cluster with something below every subtree.
func full(t *testing.T) *founded {
	t.Helper()
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "bob")
	f.join(t, "gone")
	if err := members.Remove(t.Context(), f.model, "gone", f.remover()); err != nil {
		t.Fatal(err)
	}
	f.invite(t, members.Invitation{})
	head, err := cluster.Encode(&cluster.Head{Number: cluster.Number{Epoch: 1, Count: 1}, By: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.model.Commit(t.Context(), put(cluster.HeadKey, string(head))); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{cluster.EndpointKey + "bob",
		cluster.PodsTree + "bob/0", cluster.TableTree + "web/00", cluster.ReportTree + "bob",
		cluster.TextTree + "0123/0000", cluster.RemovedTree + "table/old"} {
		if _, err := f.model.Commit(t.Context(), put(key, "1")); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// foreign returns what the store has, without what host b may write.
func (f *founded) foreign(t *testing.T) string {
	t.Helper()
	all, err := f.model.Read(t.Context(), "/", 0)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range all.Entries {
		if !mayWrite(e.Key) {
			b.WriteString(e.Key + "=" + string(e.Value) + "\n")
		}
	}
	return b.String()
}

// TestStolenHost: with the credential of host b, every key is put, deleted, put with an own key,
// compared and read over the wire. Nothing that is not b's own is written, and nothing is read that
// a host may not read.
func TestStolenHost(t *testing.T) {
	f := full(t)
	stolen := f.join(t, "b").Credential
	before := f.foreign(t)
	host := f.connect(t, stolen)
	all, err := f.model.Read(t.Context(), "/", 0)
	if err != nil {
		t.Fatal(err)
	}
	own := store.Entry{Key: cluster.EndpointKey + "b", Value: []byte("own")}
	tries := 0
	for _, key := range everyKey(all) {
		evil := store.Entry{Key: key, Value: []byte("stolen")}
		for what, x := range map[string]store.Txn{
			"put":                 {Put: []store.Entry{evil}},
			"delete":              {Delete: []string{key}},
			"put with an own key": {Put: []store.Entry{own, evil}},
			"delete with one":     {Put: []store.Entry{own}, Delete: []string{key}},
		} {
			tries++
			_, err := host.Commit(t.Context(), x)
			if mayWrite(key) {
				continue
			}
			if !errors.Is(err, store.ErrPermission) && !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s %q: %v", what, key, err)
			}
		}
		readable := strings.HasPrefix(key, cluster.Watched) ||
			strings.HasPrefix(key, cluster.TextTree) || key == cluster.ReportTree+"b"
		for _, name := range []string{key, key[:strings.LastIndex(key, "/")+1]} {
			tries++
			_, err := host.Read(t.Context(), name, 0)
			below := strings.HasPrefix(name, cluster.Watched) ||
				strings.HasPrefix(name, cluster.TextTree)
			if !readable && !below && !errors.Is(err, store.ErrPermission) {
				t.Errorf("read %q: %v", name, err)
			}
		}
		tries++
		_, err := host.Commit(t.Context(), store.Txn{Put: []store.Entry{own},
			Compare: []store.Compare{{Key: key, Revision: 1 << 40}}})
		if !readable && !errors.Is(err, store.ErrPermission) && !errors.Is(err,
			store.ErrInvalid) {
			t.Errorf("compare %q: %v", key, err)
		}
	}
	if after := f.foreign(t); after != before {
		t.Errorf("changed:\n%s\nwas\n%s", after, before)
	}
	t.Logf("%d tries, 0 foreign writes", tries)
}

// TestStolenCertificates: a key of a host does not make it anything else: an administrator, a feed,
// a weir-store, or another host. Neither does a certificate of the CA that is not in force.
func TestStolenCertificates(t *testing.T) {
	f := full(t)
	host := f.join(t, "b").Credential
	before := f.foreign(t)
	for _, id := range []identity.ID{{Kind: identity.Admin, Name: "a"},
		{Kind: identity.Admin, Name: "b"}, {Kind: identity.Feed, Name: "web"},
		{Kind: identity.Store, Name: "s"}, {Kind: identity.Host, Name: "bob"},
		{Kind: identity.Host, Name: "gone"}, {Kind: identity.Host, Name: "b"}} {
		// The CA's own signature, but no entry with this serial number.
		c, err := identity.Issue(f.ca, id)
		if err != nil {
			t.Fatal(err)
		}
		for what, x := range map[string]store.Txn{
			"head":  put(cluster.HeadKey, "stolen"),
			"table": put(cluster.TableTree+"web/00", "stolen"),
			"node":  put(cluster.NodeTree+"bob", "stolen"),
			"pods":  put(cluster.PodsTree+"bob/0", "stolen"),
		} {
			if _, err := f.connect(t, c).Commit(t.Context(), x); !errors.Is(err,
				store.ErrPermission) {
				t.Errorf("%v writes %s: %v", id, what, err)
			}
		}
		// Another's certificate with the host's key.
		c.Key = host.Key
		if _, err := f.connect(t, c).Read(t.Context(), cluster.HeadKey, 0); err == nil {
			t.Errorf("%v with the key of a host reads", id)
		}
	}
	if after := f.foreign(t); after != before {
		t.Errorf("changed:\n%s\nwas\n%s", after, before)
	}
}

// TestForgedInvitations: who writes into the store cannot invite a host, nor change whom an
// invitation is for, or what it gives: the CA signs nothing for that.
func TestForgedInvitations(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	good := f.invite(t, members.Invitation{Roles: []string{"web"}, Uses: 2})
	e, _ := f.value(t, cluster.InviteTree+good.Name())
	own := identity.NewToken(good.CA)
	renamed := good
	renamed.ID[0] ^= 1
	for what, c := range map[string]struct {
		token identity.Token
		forge func(*cluster.Invite)
	}{
		"an invitation of an attacker": {own, func(i *cluster.Invite) {
			i.Verifier = cluster.Digest(own.Verifier())
		}},
		"one under another id": {renamed, func(*cluster.Invite) {}},
		"another token in it": {identity.Token{ID: good.ID, Secret: own.Secret, CA: good.CA},
			func(i *cluster.Invite) { i.Verifier = cluster.Digest(own.Verifier()) }},
		"other roles":  {good, func(i *cluster.Invite) { i.Roles = []string{"db"} }},
		"other labels": {good, func(i *cluster.Invite) { i.Labels = []string{cluster.AnyLabel} }},
		"more hosts":   {good, func(i *cluster.Invite) { i.Uses = 100 }},
		"more time":    {good, func(i *cluster.Invite) { i.Seconds++ }},
		"no signature": {good, func(i *cluster.Invite) { i.Signature = nil }},
	} {
		invite, err := cluster.Decode[cluster.Invite](e.Value)
		if err != nil {
			t.Fatal(err)
		}
		c.forge(&invite)
		value, err := cluster.Encode(&invite)
		if err != nil {
			t.Fatal(err)
		}
		f.write(t, cluster.InviteTree+c.token.Name(), value)
		if _, err = f.joining(t, c.token, "b").Do(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "token") {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.write(t, e.Key, e.Value)
	for _, name := range []string{"b", "c"} {
		if _, err := f.joining(t, good, name).Do(t.Context()); err != nil {
			t.Errorf("%s, by an invitation for two: %v", name, err)
		}
	}
}

// TestForgedPools: who writes into the store does not choose which addresses the CA gives a host.
func TestForgedPools(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	id := f.id
	id.Pools = []cluster.Pool{pool("0.0.0.0/1", 1), pool("128.0.0.0/1", 1)}
	value, err := cluster.Encode(&id)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, cluster.IdentityKey, value)
	f.join(t, "b")
	node, _ := f.node(t, "b")
	if len(node.Ranges) != 1 || !f.id.Pools[0].Supernet.Contains(node.Ranges[0].Addr()) {
		t.Errorf("the CA gives it %v", node.Ranges)
	}
}

// raw connects as b and says hello.
func (f *founded) raw(t *testing.T, c *identity.Credential, hello bool) *tls.Conn {
	t.Helper()
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", f.address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if hello {
		if _, err := conn.Write(wire.Hello{}.Encode()); err != nil {
			t.Fatal(err)
		}
		if kind, _, err := wire.ReadFrame(conn, wire.MaxFrame); kind != wire.TypeWelcome {
			t.Fatalf("frame %d, %v", kind, err)
		}
	}
	return conn
}

// TestBadFrames: what is not a frame of a client at this time ends the connection, changes nothing,
// and weir-store serves others.
func TestBadFrames(t *testing.T) {
	f := full(t)
	stolen := f.join(t, "b").Credential
	before := f.foreign(t)
	evil := wire.Commit{Number: 1, Txn: put(cluster.HeadKey, "stolen")}.Encode()
	const twice = "two watches with the same number"
	for what, bad := range map[string]struct {
		hello  bool
		frames []byte
	}{
		"a transaction before hello":  {false, evil},
		"a join with a certificate":   {false, wire.Join{Request: []byte("{}")}.Encode()},
		"a hello of another cluster":  {false, wire.Hello{Cluster: "other"}.Encode()},
		"a large first frame":         {false, wire.Frame(wire.TypeHello, make([]byte, 9<<10))},
		"an unknown frame":            {true, wire.Frame(99, nil)},
		"a frame of weir-store":       {true, wire.Batches(1<<40, nil)},
		"a length of 4 GiB":           {true, []byte{255, 255, 255, 255, byte(wire.TypeCommit)}},
		"half a transaction":          {true, wire.Frame(wire.TypeCommit, evil[5:12])},
		"digests without being asked": {true, bytes.Repeat((&wire.Digests{}).Encode(), 3)},
		"a second hello":              {true, wire.Hello{}.Encode()},
		"to follow twice":             {true, bytes.Repeat(wire.Follow{}.Encode(), 2)},
		twice: {true,
			bytes.Repeat(wire.Watch{Name: cluster.Watched}.Encode(), 2)},
	} {
		by := stolen
		if what == twice { // a host has no watch
			by = f.admin
		}
		conn := f.raw(t, by, bad.hello)
		_, _ = conn.Write(bad.frames) // weir-store may have ended the connection already
		_, err := io.Copy(io.Discard, conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: the connection does not end", what)
		}
	}
	if after := f.foreign(t); after != before {
		t.Errorf("changed:\n%s\nwas\n%s", after, before)
	}
	if _, err := f.connect(t, stolen).Read(t.Context(), cluster.HeadKey, 0); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestSilentConnections: connections that never say who they are do not keep others out.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipenet.Listen()
		f := foundAt(t, p, p.Dial)
		host := f.join(t, "b").Credential
		for range 700 {
			conn, err := p.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		}
		begin := time.Now()
		if _, err := f.connect(t, host).Read(t.Context(), cluster.IdentityKey, 0); err != nil {
			t.Error(err)
		}
		// weir-store gives each of them some time: the host does not wait for their end.
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}
