package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
)

// fakeForwarder is a Forwarder that only records calls: packets take the host's own routing, which
// is the fast path's fallback.
type fakeForwarder struct {
	mu        sync.Mutex
	endpoints map[uint32]forward.Endpoint
	published []forward.Published
	refuse    error
	taken     []forward.TakenPort    // what SetPublished refuses
	stay      uint16                 // a host port that is to stay published; 0: none
	withdrawn bool                   // it was not, after a SetPublished
	reported  func(forward.Endpoint) // may be nil
}

func (l *fakeForwarder) SetEndpoint(e forward.Endpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	if l.reported != nil {
		l.reported(e)
	}
	l.endpoints[e.Index] = e
	return nil
}

func (l *fakeForwarder) DeleteEndpoint(index uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.endpoints, index)
	return nil
}

func (l *fakeForwarder) Endpoints() (all []forward.EndpointCounters, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for index := range l.endpoints {
		all = append(all, forward.EndpointCounters{Index: index})
	}
	return all, nil
}

func (l *fakeForwarder) SetPublished(p []forward.Published) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.taken {
		if slices.ContainsFunc(p, has(&forward.TakenError{Ports: []forward.TakenPort{t}})) {
			return &forward.TakenError{Ports: []forward.TakenPort{t}}
		}
	}
	l.published = slices.Clone(p)
	if !slices.ContainsFunc(p, func(o forward.Published) bool { return o.Host.Port() == l.stay }) {
		l.withdrawn = l.withdrawn || l.stay != 0
	}
	return nil
}

func (l *fakeForwarder) SetMasquerade(forward.Masquerade) error { return nil }

// fixture is a host with a Manager.
type fixture struct {
	t     *testing.T
	lab   *nstest.Lab
	host  *nstest.Node
	dir   string
	fast  *fakeForwarder
	m     *Manager
	nodes int

	labels func([]netip.Addr) map[string]string // what startAgain hands to the Manager; may be nil
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	nstest.RequireRoot(t)
	lab := nstest.New(t)
	b := &fixture{t: t, lab: lab, host: lab.Node("host"), dir: t.TempDir(),
		fast: &fakeForwarder{endpoints: map[uint32]forward.Endpoint{}}}
	b.start()
	return b
}

// start opens a Manager on the host, as an agent does after a restart.
func (b *fixture) start(more ...func(*Config)) {
	b.t.Helper()
	c := Config{
		Dir: filepath.Join(b.dir, "pods"),
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"),
			netip.MustParsePrefix("fd00:88::/120")},
	}
	for _, change := range more {
		change(&c)
	}
	err := b.host.Do(func() (err error) {
		b.m, err = New(c, b.fast)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.m.Close)
}

// do runs f in the host's namespace: sysctls of the host end are written by the calling thread.
func (b *fixture) do(f func() error) error { return b.host.Do(f) }

func (b *fixture) attach(name string, spec Spec) (Pod, *nstest.Node) {
	b.t.Helper()
	b.nodes++
	node := b.lab.Node(fmt.Sprint("c", b.nodes))
	spec.Container, spec.Netns = name, node.Path()
	var p Pod
	if err := b.do(func() (err error) {
		p, _, err = b.m.Attach(b.t.Context(), spec)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	return p, node
}

// ping sends one and waits for its answer, which has to come.
func (b *fixture) ping(from *nstest.Node, to netip.Addr) error {
	return b.pingFor(from, to, time.Minute)
}

func (b *fixture) pingFor(from *nstest.Node, to netip.Addr, most time.Duration) error {
	out, err := from.Command("ping", "-c1", fmt.Sprint("-W", most.Seconds()),
		to.String()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ping %s: %w: %s", to, err, out)
	}
	return nil
}

// traces lists what is left of pods in the kernel and on the disk.
func (b *fixture) traces() []string {
	b.t.Helper()
	var left []string
	links, err := b.host.Netlink().Links()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Alias, AliasPrefix) {
			left = append(left, "link "+l.Name)
		}
	}
	routes, err := b.host.Netlink().Routes(0)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range routes {
		if gw := r.Dst.Addr() == netip.MustParseAddr("fd00:88::1"); r.Dst.IsSingleIP() && !gw {
			left = append(left, "route "+r.Dst.String())
		}
	}
	files, err := os.ReadDir(filepath.Join(b.dir, "pods"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == gatewaysFile {
			continue
		}
		left = append(left, "file "+f.Name())
	}
	for i := range b.fast.endpoints {
		left = append(left, fmt.Sprint("endpoint ", i))
	}
	return left
}
