package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
)

// silence is short, since the suite waits for it.
const silence = 900 * time.Millisecond

// everything is what the suite's names begin with. A subtree ends in a slash, so the empty name is
// not one.
var everything = grantsFor("a", "b", "c", "h", "ha", "h0", "n", "t",
	"tt", "v", "other", "absent/", "claim/", "h/", "l/", "other/", "p/", "t/", "w/", "x/")

func grantsFor(names ...string) (grants []store.Grant) {
	for _, name := range names {
		grants = append(grants, store.Grant{Name: name, Write: true})
	}
	return grants
}

// wired is a model behind a server, behind a proxy.
type wired struct {
	model *storetest.Model
	ca    *identity.CA
	proxy *storetest.Proxy
	name  string // what the server follows

	silence time.Duration
	piped   bool // all connections are in memory
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	grants map[string][]store.Grant // by name of the host; nil: everything
	hosts  int

	server *server.Server
	stop   func()
}

// newSteady is for tests that do not wait for silence. A busy machine makes no connection fail: to
// connect may take a third of the time of silence.
func newSteady(t *testing.T, name string) *wired {
	t.Helper()
	w := &wired{name: name, silence: 3 * testTimeout, dial: new(net.Dialer).DialContext,
		proxy: storetest.NewProxy(t, "tcp", "127.0.0.1:0", "")}
	w.begin(t)
	return w
}

// newPiped is for a bubble of testing/synctest.
func newPiped(t *testing.T, name string, silence time.Duration) *wired {
	t.Helper()
	l := pipenet.Listen()
	w := &wired{name: name, silence: silence, dial: l.Dial, piped: true,
		proxy: storetest.NewProxyAt(t, l, nil)}
	w.begin(t)
	return w
}

func (w *wired) begin(t *testing.T) {
	t.Helper()
	ca, err := identity.NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	w.model, w.ca, w.grants = storetest.NewModel(w.silence), ca, map[string][]store.Grant{}
	w.start(t)
	t.Cleanup(func() { w.stop() })
}

// listen returns a listener of weir-store, and what connects to it.
func (w *wired) listen(t *testing.T) (net.Listener, func() (net.Conn, error)) {
	t.Helper()
	if w.piped {
		l := pipenet.Listen()
		return l, func() (net.Conn, error) { return l.Dial(context.Background(), "", "") }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
}

// admitKey is the entry that admits a host whose rights are limited.
func (w *wired) admitKey(name string) string { return w.name + "node/" + name }

func (w *wired) start(t *testing.T) {
	t.Helper()
	own, err := identity.Issue(w.ca, identity.ID{Kind: identity.Store, Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := own.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	w.server, err = server.New(server.Config{Store: w.model, Name: w.name, TLS: config,
		Cluster:  func(server.Get) (string, uint64, error) { return "test", 1, nil },
		Admit:    w.admit,
		Progress: w.silence / 6, Silence: w.silence})
	if err != nil {
		t.Fatal(err)
	}
	listener, to := w.listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { w.server.Run(ctx) })
	group.Go(func() { w.server.Serve(listener) })
	w.proxy.Lead(to)
	running := w.server
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Close()
		group.Wait()
	})
}

func (w *wired) admit(get server.Get, p identity.Peer) (server.Admission, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	grants, ok := w.grants[p.ID.Name]
	if !ok {
		return server.Admission{}, errors.New("unknown")
	}
	if grants == nil {
		return server.Admission{Grants: everything}, nil
	}
	a := server.Admission{Grants: grants, Key: w.admitKey(p.ID.Name)}
	e, ok := get(a.Key)
	if !ok {
		return a, fmt.Errorf("%s was removed", p.ID.Name)
	}
	a.Revision = e.Revision
	return a, nil
}

// newHost returns the credential of a new host.
func (w *wired) newHost(t *testing.T, grants []store.Grant) (string, *tls.Config) {
	t.Helper()
	w.mu.Lock()
	w.hosts++
	name := fmt.Sprintf("u%d", w.hosts)
	w.grants[name] = grants
	w.mu.Unlock()
	c, err := identity.Issue(w.ca, identity.ID{Kind: identity.Host, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	return name, config
}

func (w *wired) client(t *testing.T, grants []store.Grant) *client.Client {
	t.Helper()
	name, config := w.newHost(t, grants)
	c, err := client.New(client.Config{Name: name, Cluster: "test", TLS: config,
		Stores: func() []string { return []string{w.proxy.Address} },
		Dial:   w.dial, Silence: w.silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
