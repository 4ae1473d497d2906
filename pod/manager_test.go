package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	b := newFixture(t)
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
	if !b.m.Holds("one", "eth0") || b.m.Holds("one", "eth1") || b.m.Holds("other", "eth0") {
		t.Error("the manager does not know what it holds")
	}
}

func TestDetachLeavesNothing(t *testing.T) {
	b := newFixture(t)
	b.attach("one", Spec{Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}})
	if len(b.fast.published) != 2 {
		t.Fatalf("published: %v, want one of each family", b.fast.published)
	}
	for range 2 { // the second finds nothing, which is not an error
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

func TestDetachAsyncEndsAsDetachDoes(t *testing.T) {
	b := newFixture(t)
	p, _ := b.attach("one", Spec{Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}})
	if err := b.m.DetachAsync(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	if len(b.m.List()) != 0 || len(b.fast.published) != 0 {
		t.Errorf("after Leave: pods %v, published %v", b.m.List(), b.fast.published)
	}
	// waits for the rest of DetachAsync
	if other, _ := b.attach("one", Spec{}); other.Index == p.Index {
		t.Errorf("the new pod has the old one's interface %d", p.Index)
	}
	if err := b.m.DetachAsync(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	b.m.detaching.Wait()
	if left := b.traces(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFailedDetachAsyncIsRetried(t *testing.T) {
	b := newFixture(t)
	var reported error
	b.m.config.OnError = func(err error) { reported = err }
	b.attach("one", Spec{})
	fails := errors.New("no memory")
	b.m.config.OnDetach = func(Pod) error { return fails }
	if err := b.m.DetachAsync(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	b.m.detaching.Wait()
	if !errors.Is(reported, fails) {
		t.Errorf("reported %v", reported)
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

// TestEveryFailureToEndIsReported: the node, not the caller alone, hears of a pod that cannot be
// taken away, and tries again. A runtime may not ask again, and the pod is in no list any more.
func TestEveryFailureToEndIsReported(t *testing.T) {
	b := newFixture(t)
	var reported error
	b.m.config.OnError = func(err error) { reported = err }
	fails := errors.New("no memory")
	for what, try := range map[string]func(node *nstest.Node) error{
		"detach": func(*nstest.Node) error { return b.m.Detach(t.Context(), "one", "") },
		"detach of a pod whose record cannot be written": func(*nstest.Node) error {
			dir := b.m.store.dir
			if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0)); err != nil {
				return err
			}
			return errors.Join(b.m.DetachAsync(t.Context(), "one", ""), os.Remove(dir))
		},
		"attach in place of a dead pod": func(node *nstest.Node) error {
			if err := b.host.Netlink().DeleteLink(int(b.m.List()[0].Index)); err != nil {
				return err
			}
			_, _, err := b.m.Attach(t.Context(), Spec{Container: "one", Netns: node.Path()})
			return err
		},
		"attach that fails, as the interface is taken": func(node *nstest.Node) error {
			_, _, err := b.m.Attach(t.Context(), Spec{Container: "two", Netns: node.Path()})
			return err
		},
	} {
		reported = nil
		_, node := b.attach("one", Spec{})
		b.m.config.OnDetach = func(Pod) error { return fails }
		err := b.do(func() error { return try(node) })
		if !errors.Is(err, fails) || !errors.Is(reported, fails) {
			t.Errorf("%s: %v, reported %v", what, err, reported)
		}
		b.m.config.OnDetach = func(Pod) error { return nil }
		if err := errors.Join(b.m.Sweep(t.Context()),
			b.m.Detach(t.Context(), "one", "")); err != nil || len(b.m.pools[0].used) != 0 {
			t.Fatalf("%s: then %v, in use %v", what, err, b.m.pools[0].used)
		}
	}
}

func TestAttachIsIdempotent(t *testing.T) {
	b := newFixture(t)
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
	b := newFixture(t)
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
	b := newFixture(t)
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

	b.fast.endpoints = map[uint32]forward.Endpoint{}
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
	b := newFixture(t)
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
