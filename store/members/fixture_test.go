package members_test

import (
	"context"
	"crypto/ed25519"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
)

const (
	testTimeout = 5 * time.Minute
	silence     = 3 * testTimeout // to connect may take a third of it
)

// founded is a cluster on the model with one weir-store and one administrator.
type founded struct {
	model   *storetest.Model
	ca      *identity.CA
	admin   *identity.Credential
	id      cluster.Identity
	server  *server.Server
	address string
	dial    dialer
	full    atomic.Int64 // of the database, in percent

	mu    sync.Mutex
	bound members.Certificates    // guarded by mu
	saved members.Certificates    // guarded by mu; when Joiner.Save was called last
	ended map[cluster.Serial]bool // guarded by mu
}

// note is what a store host does with changes that it sees.
func (f *founded) note(changes []store.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ca := []cluster.Key{cluster.Key(f.ca.Key().Public().(ed25519.PublicKey))}
	for _, ch := range changes {
		for _, s := range cluster.RevokedHosts(ch.Entry, ca, nil) {
			f.ended[s] = true
		}
	}
	f.bound.Note(changes, ca, func(s cluster.Serial) bool { return f.ended[s] })
}

// save is Joiner.Save, without a file.
func (f *founded) save() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved = maps.Clone(f.bound)
}

// remover is who removes a host on the store host with the CA's key.
func (f *founded) remover() members.Signing {
	return members.Signing{CA: []cluster.Key{cluster.Key(f.ca.Key().Public().(ed25519.PublicKey))},
		Bound: f.certificates(), CAKey: f.ca.Key()}
}

func (f *founded) certificates() members.Certificates {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.bound)
}

func found(t *testing.T, pools ...cluster.Pool) *founded {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return foundAt(t, listener, new(net.Dialer).DialContext, pools...)
}

// dialer dials as net.Dialer does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func foundAt(t *testing.T, listener net.Listener, dial dialer, pools ...cluster.Pool) *founded {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f := &founded{model: storetest.NewModel(silence), dial: dial, bound: members.Certificates{},
		ended: map[cluster.Serial]bool{}}
	f.address = listener.Addr().String()
	var err error
	f.id = cluster.Identity{ID: cluster.Serial(identity.NewSerial()), Epoch: 1, Pools: pools,
		Stores: []string{f.address}}
	f.ca, err = identity.NewCA(f.id.ID.String())
	must(err)
	f.id.CA = [][]byte{f.ca.Certificate()}
	f.admin, err = identity.Issue(f.ca, identity.ID{Kind: identity.Admin, Name: "a"})
	must(err)
	peer, err := f.admin.Peer()
	must(err)
	must(members.CreateCluster(t.Context(), f.model, f.id, peer))
	own, err := identity.Issue(f.ca, identity.ID{Kind: identity.Store, Name: "s"})
	must(err)
	config, err := own.ServerTLS()
	must(err)
	joiner := members.NewJoiner(f.model, f.ca)
	joiner.PercentFull = func() int { return int(f.full.Load()) }
	joiner.Pools = append([]cluster.Pool{}, pools...) // not nil
	joiner.Revoked = func() []cluster.Serial { return []cluster.Serial{{7}, {8}} }
	joiner.Bound, joiner.Note, joiner.Save = f.certificates, f.note, f.save
	f.server, err = server.New(server.Config{Store: f.model, Name: cluster.Watched, TLS: config,
		Cluster: members.ClusterOf, Admit: members.Admit, PercentFull: joiner.PercentFull,
		Join: joiner.Join, Changed: f.note, Progress: time.Second, Silence: silence})
	must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { f.server.Run(ctx) })
	group.Go(func() { f.server.Serve(listener) })
	t.Cleanup(func() {
		cancel()
		f.server.Close()
		group.Wait()
	})
	return f
}

func pool(supernet string, bits int) cluster.Pool {
	return cluster.Pool{Supernet: netip.MustParsePrefix(supernet), Bits: bits}
}

func (f *founded) invite(t *testing.T, i members.Invitation) identity.Token {
	t.Helper()
	if i.Uses == 0 {
		i.Uses = 1
	}
	i.Valid = time.Hour
	token, err := members.Invite(t.Context(), f.model, f.ca, i)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// joining returns what a new host of a name sends.
func (f *founded) joining(t *testing.T, token identity.Token, name string) client.Join {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return client.Join{Token: token, Address: f.address, Name: name, Key: key,
		WireGuardKey: [32]byte(key.Public().(ed25519.PublicKey)), Dial: f.dial}
}

func (f *founded) join(t *testing.T, name string, roles ...string) *client.Joined {
	t.Helper()
	joined, err := f.joining(t, f.invite(t, members.Invitation{Roles: roles,
		Labels: []string{"app"}}), name).Do(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return joined
}

func (f *founded) connect(t *testing.T, c *identity.Credential) *client.Client {
	t.Helper()
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	connected, err := client.New(client.Config{Name: "x", Cluster: f.id.ID.String(), TLS: config,
		Stores: func() []string { return []string{f.address} }, Silence: silence,
		Dial: f.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connected.Close() })
	return connected
}

// value reads a key past weir-store.
func (f *founded) value(t *testing.T, key string) (store.Entry, bool) {
	t.Helper()
	got, err := f.model.Read(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Entries) == 0 {
		return store.Entry{}, false
	}
	return got.Entries[0], true
}

func put(key, value string) store.Txn {
	return store.Txn{Put: []store.Entry{{Key: key, Value: []byte(value)}}}
}
