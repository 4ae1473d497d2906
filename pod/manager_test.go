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

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// ledger is a Forwarder that only remembers: packets take the host's own routing, which is the fast
// path's fallback.
type ledger struct {
	mu        sync.Mutex
	endpoints map[uint32]firewall.Endpoint
	published []firewall.Published
	refuse    error
	told      func(firewall.Endpoint) // may be nil
}

func (l *ledger) SetEndpoint(e firewall.Endpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	if l.told != nil {
		l.told(e)
	}
	l.endpoints[e.Index] = e
	return nil
}

func (l *ledger) DeleteEndpoint(index uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.endpoints, index)
	return nil
}

func (l *ledger) Endpoints() (all []firewall.EndpointCounters, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for index := range l.endpoints {
		all = append(all, firewall.EndpointCounters{Index: index})
	}
	return all, nil
}

func (l *ledger) SetPublished(p []firewall.Published) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published = p
	return nil
}

func (l *ledger) SetMasquerade(firewall.Masquerade) error { return nil }

// bench is a host with room for pods.
type bench struct {
	t     *testing.T
	lab   *nstest.Lab
	host  *nstest.Node
	dir   string
	fast  *ledger
	m     *Manager
	nodes int

	labels func([]netip.Addr) map[string]string // what startAgain hands to the Manager; may be nil
}

func newBench(t *testing.T) *bench {
	t.Helper()
	nstest.Root(t)
	lab := nstest.New(t)
	b := &bench{t: t, lab: lab, host: lab.Node("host"), dir: t.TempDir(),
		fast: &ledger{endpoints: map[uint32]firewall.Endpoint{}}}
	b.start()
	return b
}

// start opens a Manager on the host, as an agent does after a restart.
func (b *bench) start(more ...func(*Config)) {
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
func (b *bench) do(f func() error) error { return b.host.Do(f) }

func (b *bench) attach(name string, spec Spec) (Pod, *nstest.Node) {
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

func (b *bench) ping(from *nstest.Node, to netip.Addr) error {
	out, err := from.Command("ping", "-c1", "-W2", to.String()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ping %s: %w: %s", to, err, out)
	}
	return nil
}

// traces lists what is left of pods in the kernel and on the disk.
func (b *bench) traces() []string {
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

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	b := newBench(t)
	p1, n1 := b.attach("one", Spec{})
	p2, _ := b.attach("two", Spec{})
	for _, to := range append(append([]netip.Addr{}, p2.Addrs...), p1.Gateway...) {
		if err := b.ping(n1, to); err != nil {
			t.Error(err)
		}
	}
	for _, to := range p1.Addrs {
		if err := b.ping(b.host, to); err != nil {
			t.Error(err)
		}
	}
	if e := b.fast.endpoints[p1.Index]; e.Name != "pod:one" || len(e.Addrs) != 2 {
		t.Errorf("the fast path knows %+v of pod one", e)
	}
	if err := b.do(func() error { return b.m.Check("one", "", nil) }); err != nil {
		t.Errorf("a whole pod fails its check: %v", err)
	}
}

func TestDetachLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.attach("one", Spec{Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}})
	if len(b.fast.published) != 2 {
		t.Fatalf("published: %v, want one of each family", b.fast.published)
	}
	for range 2 { // the second finds nothing, which is no error
		if err := b.m.Detach(t.Context(), "one", ""); err != nil {
			t.Fatal(err)
		}
	}
	if left := b.traces(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if len(b.fast.published) != 0 {
		t.Errorf("still published: %v", b.fast.published)
	}
}

func TestLeaveIsSoonAsGoodAsDetach(t *testing.T) {
	b := newBench(t)
	p, _ := b.attach("one", Spec{Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}})
	if err := b.m.Leave(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	if len(b.m.List()) != 0 || len(b.fast.published) != 0 {
		t.Errorf("after Leave: pods %v, published %v", b.m.List(), b.fast.published)
	}
	if other, _ := b.attach("one", Spec{}); other.Index == p.Index { // waits for the rest of Leave
		t.Errorf("the new pod has the old one's interface %d", p.Index)
	}
	if err := b.m.Leave(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	b.m.leaving.Wait()
	if left := b.traces(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLeaveThatFailsIsFinishedLater(t *testing.T) {
	b := newBench(t)
	var told error
	b.m.config.Failed = func(err error) { told = err }
	b.attach("one", Spec{})
	fails := errors.New("no memory")
	b.m.config.Went = func(Pod) error { return fails }
	if err := b.m.Leave(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	b.m.leaving.Wait()
	if !errors.Is(told, fails) {
		t.Errorf("told %v", told)
	}
	if err := b.m.Sweep(t.Context()); !errors.Is(err, fails) || len(b.m.pools[0].used) != 1 {
		t.Errorf("a sweep that fails, too: %v, %v", err, b.m.pools[0].used)
	}
	fails = nil
	if err := b.m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.m.pools[0].used) != 0 {
		t.Errorf("addresses in use: %v", b.m.pools[0].used)
	}
	if left := b.traces(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAttachTwiceIsOnce(t *testing.T) {
	b := newBench(t)
	p, node := b.attach("one", Spec{})
	again, _, err := b.m.Attach(t.Context(), Spec{Container: "one", Netns: node.Path()})
	if err != nil || again.Addrs[0] != p.Addrs[0] || again.Index != p.Index {
		t.Errorf("a second attach gave %+v, %v, want the same pod", again, err)
	}
	if _, _, err := b.m.Attach(t.Context(),
		Spec{Container: "one", Netns: b.lab.Node("other").Path()}); err == nil ||
		!strings.Contains(err.Error(), "attached already") {
		t.Errorf("a second attach to another namespace gave %v", err)
	}
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	b := newBench(t)
	node := b.lab.Node("c")
	full := errors.New("map is full")
	for what, spoil := range map[string]func(*Spec){
		"the fast path refuses":  func(*Spec) { b.fast.refuse = full },
		"the namespace is none":  func(s *Spec) { s.Netns = "/dev/null" },
		"the namespace is gone":  func(s *Spec) { s.Netns = "/run/netns/there-is-none" },
		"the interface is taken": func(s *Spec) { s.IfName = "lo" },
	} {
		b.fast.refuse = nil
		spec := Spec{Container: "one", Netns: node.Path()}
		spoil(&spec)
		if err := b.do(func() error {
			_, _, err := b.m.Attach(t.Context(), spec)
			return err
		}); err == nil {
			t.Errorf("%s: attach succeeded", what)
		}
		if left := b.traces(); len(left) != 0 {
			t.Errorf("%s: left behind: %v", what, left)
		}
	}
	b.fast.refuse = nil
	for _, pool := range b.m.pools {
		if len(pool.used) != 0 {
			t.Errorf("failed attaches kept addresses: %v", pool.used)
		}
	}
}

func TestRestartKeepsPodsAndRemovesStaleOnes(t *testing.T) {
	b := newBench(t)
	kept, node := b.attach("kept", Spec{})
	cut, _ := b.attach("cut", Spec{})
	gone, _ := b.attach("gone", Spec{})
	b.m.Close()

	// "cut": its process was killed before the attach was complete. "gone": the interface went with
	// its namespace. And a link without any record.
	cut.Ready = false
	if err := b.m.store.save(&cut); err != nil {
		t.Fatal(err)
	}
	if err := b.host.Netlink().DeleteLink(int(gone.Index)); err != nil {
		t.Fatal(err)
	}
	lost := nl.Veth{Name: hostIf("lost/eth0"), Alias: AliasPrefix + "lost/eth0", PeerName: "eth0",
		PeerNS: b.lab.Node("orphan").NS()}
	if err := b.host.Netlink().AddVeth(lost); err != nil {
		t.Fatal(err)
	}

	b.fast.endpoints = map[uint32]firewall.Endpoint{}
	b.start()
	if list := b.m.List(); len(list) != 1 || list[0].Name != "kept" {
		t.Errorf("after the restart: %+v, want only kept", list)
	}
	if len(b.fast.endpoints) != 1 || b.fast.endpoints[kept.Index].Name != "pod:kept" {
		t.Errorf("the fast path knows %v", b.fast.endpoints)
	}
	if err := b.ping(node, kept.Gateway[0]); err != nil {
		t.Error(err)
	}
	b.m.Close()
	if err := b.do(func() error { return Remove(filepath.Join(b.dir, "pods")) }); err != nil {
		t.Error(err)
	}
	delete(b.fast.endpoints, kept.Index)
	if left := b.traces(); len(left) != 0 {
		t.Errorf("Remove left behind: %v", left)
	}
	addrs, err := b.host.Netlink().Addrs(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if a.Prefix.Addr() == kept.Gateway[0] {
			t.Errorf("Remove left the gateway address %s", a.Prefix)
		}
	}
}

func TestFiftyAttachesSideBySide(t *testing.T) {
	b := newBench(t)
	const n = 50
	nodes := make([]*nstest.Node, n)
	for i := range nodes {
		nodes[i] = b.lab.Node(fmt.Sprint("c", i))
	}
	pods, errs := make([]Pod, n), make([]error, n)
	start := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			errs[i] = b.do(func() (err error) {
				pods[i], _, err = b.m.Attach(t.Context(),
					Spec{Container: fmt.Sprint("pod", i), Netns: nodes[i].Path()})
				return err
			})
		})
	}
	all.Wait()
	t.Logf("%d attaches side by side took %v", n, time.Since(start))
	seen := map[netip.Addr]bool{}
	for i, p := range pods {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		for _, a := range p.Addrs {
			if seen[a] {
				t.Errorf("%s was given twice", a)
			}
			seen[a] = true
		}
	}
	if err := b.ping(nodes[0], pods[n-1].Addrs[1]); err != nil {
		t.Error(err)
	}
}

func TestClashesAreRefused(t *testing.T) {
	b := newBench(t)
	web := []Publish{{Proto: 6, HostPort: 8080, Port: 80}}
	p, _ := b.attach("one", Spec{Name: "web", Publish: web})
	for want, spec := range map[string]Spec{
		"pod name web is taken by container one; choose another name": {Name: "web"},
		"pod two: host port 8080 is published for pod web already":    {Publish: web},
		fmt.Sprintf("pod two: address %s is in use by pod web",
			p.Addrs[0]): {Addrs: p.Addrs[:1]},
		"pod two: address 10.99.0.5 is not in the pod range 10.88.0.0/24": {Addrs: []netip.Addr{netip.MustParseAddr("10.99.0.5")}},
		"pod two: two addresses of one family, 10.88.0.8 and 10.88.0.9; a pod has at most one of " +
			"each": {Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.8"),
			netip.MustParseAddr("10.88.0.9")}},
		`pod two: label "a b"="c": only letters, digits, '_', '.', '/' and '-', at most 63 each`: {Labels: map[string]string{"a b": "c"}},
		"pod two: an MTU of 100 is not between 576 and 65535":                                    {MTU: 100},
	} {
		spec.Container, spec.Netns = "two", "/proc/self/ns/net"
		_, _, err := b.m.Attach(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestHeldAddressesGoToThePodThatAsksForThem(t *testing.T) {
	b := newBench(t)
	a, err := b.m.Hold(netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := b.attach("other", Spec{}); p.Addrs[0] == a {
		t.Fatalf("a held address went to another pod")
	}
	if p, _ := b.attach("one", Spec{Addrs: []netip.Addr{a}}); p.Addrs[0] != a {
		t.Errorf("got %v, want the held %s", p.Addrs, a)
	}
	b.m.Unreserve(a) // the pod's now
	if _, err := b.m.Hold(a); err == nil {
		t.Errorf("an address in use was handed out")
	}
	if err := b.m.Detach(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.m.Hold(a); err != nil {
		t.Errorf("a detached pod's address is not free: %v", err)
	}
}

// TestAddressesAreUsable: a container may begin to talk as soon as it is attached, by both
// families. The kernel takes packets for an address once it has a local route.
func TestAddressesAreUsable(t *testing.T) {
	b := newBench(t)
	for i := range 50 {
		p, node := b.attach(fmt.Sprint("pod", i), Spec{})
		routes, err := node.Netlink().Routes(unix.RT_TABLE_LOCAL)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range p.Addrs {
			if !slices.ContainsFunc(routes, func(r nl.Route) bool {
				return r.Dst == netip.PrefixFrom(a, a.BitLen())
			}) {
				t.Errorf("pod %d: %s cannot be used yet", i, a)
			}
		}
	}
}

// TestAddressesInside: a pod has its own addresses and one link-local one that is in use at once,
// also where somebody has switched IPv6 off in the namespace before.
func TestAddressesInside(t *testing.T) {
	b := newBench(t)
	for _, off := range []string{"0", "1"} {
		node := b.lab.Node("inside" + off)
		for _, which := range []string{"all", "default"} {
			if err := node.SetSysctl("net.ipv6.conf."+which+".disable_ipv6", off); err != nil {
				t.Fatal(err)
			}
		}
		var p Pod
		err := b.do(func() (err error) {
			p, _, err = b.m.Attach(t.Context(), Spec{Container: "inside" + off, Netns: node.Path()})
			return err
		})
		if err != nil {
			t.Fatalf("IPv6 off %s: %v", off, err)
		}
		link, err := node.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := node.Netlink().Addrs(link.Index)
		if err != nil {
			t.Fatal(err)
		}
		var local []nl.Addr
		for _, a := range addrs {
			if a.Prefix.Addr().IsLinkLocalUnicast() {
				local = append(local, a)
			}
		}
		if len(addrs) != 3 || len(local) != 1 || local[0].Tentative ||
			local[0].Prefix.Addr() != linkLocal(p.MAC) {
			t.Errorf("IPv6 off %s: addresses %+v", off, addrs)
		}
		for _, a := range p.Addrs {
			if err := b.ping(b.host, a); err != nil {
				t.Error(err)
			}
		}
	}
}
