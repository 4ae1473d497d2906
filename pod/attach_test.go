package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// try is Attach on the host.
func (b *fixture) try(spec Spec) (p Pod, made bool, err error) {
	err = b.do(func() (err error) { p, made, err = b.m.Attach(b.t.Context(), spec); return err })
	return p, made, err
}

// processNamespace makes a namespace that lives as long as a process, and a name for it that can be
// given to another.
func (b *fixture) processNamespace(name string) (path string, end func()) {
	b.t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "1000")
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	end = func() { cmd.Process.Kill(); cmd.Wait() }
	b.t.Cleanup(end)
	own, _ := os.Readlink("/proc/self/ns/net")
	inside := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	nstest.Eventually(b.t, "the process has a namespace of its own", func() bool {
		now, err := os.Readlink(inside)
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && now != own && strings.HasPrefix(string(comm), "sleep")
	})
	path = filepath.Join(b.dir, name)
	os.Remove(path)
	if err := os.Symlink(inside, path); err != nil {
		b.t.Fatal(err)
	}
	return path, end
}

// TestFirewallBeforeLinkUp: when the fast path gets a pod and OnAttach is called, neither end of
// its link is up. When OnDetach is called, there is no link, and the fast path still has the pod.
// It refuses the pod's addresses as sources of others, which labels may let in.
func TestFirewallBeforeLinkUp(t *testing.T) {
	b := newFixture(t)
	var saw []string
	look := func(what string, index uint32) {
		host, err := b.host.Netlink().LinkByIndex(int(index))
		if err != nil {
			saw = append(saw, what+": no link")
			return
		}
		saw = append(saw, fmt.Sprintf("%s: up %v, running %v", what, host.Up, host.Running))
	}
	b.fast.reported = func(e forward.Endpoint) { look("endpoint", e.Index) }
	guarded := func(p Pod) bool {
		b.fast.mu.Lock()
		defer b.fast.mu.Unlock()
		_, there := b.fast.endpoints[p.Index]
		return there
	}
	b.m.config.OnAttach = func(p Pod) error {
		look(fmt.Sprintf("attach, guarded %v", guarded(p)), p.Index)
		return nil
	}
	b.m.config.OnDetach = func(p Pod) error {
		look(fmt.Sprintf("detach, guarded %v", guarded(p)), p.Index)
		return nil
	}
	b.attach("one", Spec{})
	if err := b.m.Detach(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"endpoint: up false, running false",
		"attach, guarded true: up false, running false", "detach, guarded true: no link"}
	if !slices.Equal(saw, want) {
		t.Errorf("%q, want %q", saw, want)
	}
}

// TestOwnNamespace: the node's own namespace is refused as a container's, whatever its path, and
// keeps its routes.
func TestOwnNamespace(t *testing.T) {
	b := newFixture(t)
	b.lab.Join(b.host, "card", "192.0.2.1/24", b.lab.Node("outside"), "card", "192.0.2.2/24")
	b.host.Route("0.0.0.0/0", "192.0.2.2")
	link := filepath.Join(b.dir, "link")
	if err := os.Symlink(b.host.Path(), link); err != nil {
		t.Fatal(err)
	}
	sleep := b.host.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleep.Process.Kill(); sleep.Wait() })
	for _, path := range []string{b.host.Path(), link,
		fmt.Sprintf("/proc/%d/ns/net", sleep.Process.Pid)} {
		for _, moved := range []bool{false, true} {
			_, _, err := b.try(Spec{Container: "one", Netns: path, RuntimeMovesInterface: moved})
			if err == nil || !strings.Contains(err.Error(), "the node's own network namespace") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if r, err := b.host.Netlink().RouteTo(netip.MustParseAddr("198.51.100.1")); err != nil ||
		r.Via != netip.MustParseAddr("192.0.2.2") {
		t.Errorf("the host's default route is %v, %v", r, err)
	}
}

// TestNamespaceMadeAgain: a namespace that was deleted and made again under the same name is
// another namespace, and its pod another pod. So is a pod whose interface was deleted.
func TestNamespaceMadeAgain(t *testing.T) {
	b := newFixture(t)
	spec := Spec{Container: "one", Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}}
	var end func()
	spec.Netns, end = b.processNamespace("one")
	first, made, err := b.try(spec)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if again, made, err := b.try(spec); err != nil || made || again.Index != first.Index {
		t.Errorf("the same attach again: %+v, made %v, %v", again, made, err)
	}
	end() // the kernel takes its time: the host end may live on for a moment
	spec.Netns, end = b.processNamespace("one")
	second, made, err := b.try(spec)
	if err != nil || !made || second.Index == first.Index {
		t.Fatalf("the attach of the new namespace: %+v, made %v, %v", second, made, err)
	}
	nstest.Eventually(b.t, "the new one answers", func() bool {
		return b.pingFor(b.host, second.Addrs[0], 2*time.Second) == nil
	})
	if err := b.host.Netlink().DeleteLink(int(second.Index)); err != nil {
		t.Fatal(err)
	}
	third, made, err := b.try(spec)
	if err != nil || !made || third.Index == second.Index {
		t.Fatalf("the attach of one whose interface was deleted: %+v, made %v, %v", third, made,
			err)
	}
	if _, _, err := b.try(Spec{Container: "one",
		Netns: b.lab.Node("elsewhere").Path()}); err == nil ||
		!strings.Contains(err.Error(), "attached already") {
		t.Errorf("an attach of a living pod to another namespace: %v", err)
	}
	end()
	nstest.Eventually(b.t, "the namespace is gone", func() bool { return !b.m.alive(&third) })
	if err := b.m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := b.traces(); len(left) != 0 || len(b.fast.published) != 0 ||
		len(b.m.pools[0].used) != 0 {
		t.Errorf("a dead pod left %v, published %v, addresses %v", left, b.fast.published,
			b.m.pools[0].used)
	}
}

// TestWaitingEnds: a call that waits for another one on the same pod ends with its caller.
func TestWaitingEnds(t *testing.T) {
	b := newFixture(t)
	release, err := b.m.claim(t.Context(), "one/eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	node := b.lab.Node("c")
	for what, call := range map[string]func() error{
		"attach": func() error {
			_, _, err := b.m.Attach(ctx, Spec{Container: "one", Netns: node.Path()})
			return err
		},
		"detach": func() error { return b.m.Detach(ctx, "one", "") },
		"leave":  func() error { return b.m.DetachAsync(ctx, "one", "") },
	} {
		if err := b.do(call); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestForeignLinks: an interface that has the name of a pod's host end and is not its is never
// removed, nor does it keep the pod from ending.
func TestForeignLinks(t *testing.T) {
	b := newFixture(t)
	for _, alias := range []string{"another program's", AliasPrefix + "another/eth0"} {
		if err := b.host.Netlink().AddVeth(nl.Veth{Name: hostIf("one/eth0"),
			PeerName: "other"}); err != nil {
			t.Fatal(err)
		}
		link := b.host.Link(hostIf("one/eth0"))
		// the kernel takes no alias for a link that it makes
		if err := b.host.Netlink().SetLinkAlias(link.Index, alias); err != nil {
			t.Fatal(err)
		}
		_, _, err := b.try(Spec{Container: "one", Netns: b.lab.Node("c" + alias[:4]).Path()})
		if err == nil || !strings.Contains(err.Error(), "has the pod's interface name") {
			t.Errorf("%s: %v", alias, err)
		}
		if err := b.m.Detach(t.Context(), "one", ""); err != nil {
			t.Errorf("%s: %v", alias, err)
		}
		if len(b.m.pools[0].used) != 0 {
			t.Errorf("%s: addresses in use: %v", alias, b.m.pools[0].used)
		}
		if now, err := b.host.Netlink().LinkByName(hostIf("one/eth0")); err != nil ||
			now.Index != link.Index {
			t.Errorf("%s: the link is gone: %v", alias, err)
		}
		if err := b.host.Netlink().DeleteLink(link.Index); err != nil {
			t.Fatal(err)
		}
	}
	if err := deleteLink(b.host.Netlink(), 1<<20); err != nil {
		t.Errorf("an interface that is gone already: %v", err)
	}
}

// TestNamesAreFreeAtOnce: the name and the ports of a pod that leaves are another's before its
// interface is gone.
func TestNamesAreFreeAtOnce(t *testing.T) {
	b := newFixture(t)
	spec := Spec{Name: "web", Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}}
	b.attach("one", spec)
	hold, held := make(chan struct{}), make(chan struct{})
	b.m.config.OnDetach = func(p Pod) error {
		if p.Container == "one" {
			close(held)
			<-hold
		}
		return nil
	}
	if err := b.m.DetachAsync(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	<-held
	p, _ := b.attach("two", spec)
	if found, err := b.m.Find("web", ""); err != nil || found.Container != "two" ||
		len(b.fast.published) != 2 {
		t.Errorf("web is %+v, %v, published %v", found, err, b.fast.published)
	}
	if p.Addrs[0] == netip.MustParseAddr("10.88.0.2") {
		t.Error("the new pod has the address of the one that leaves")
	}
	third := make(chan error, 1)
	node := b.lab.Node("third")
	go func() {
		third <- b.do(func() error {
			_, _, err := b.m.Attach(t.Context(),
				Spec{Container: "three", Netns: node.Path(),
					Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.2")}})
			return err
		})
	}()
	time.Sleep(20 * time.Millisecond)
	close(hold)
	if err := <-third; err != nil {
		t.Errorf("who asks for the address of one that leaves gets %v", err)
	}
	b.m.Wait()
}

// TestLivingPodKeepsItsName: a pod that only lost the path to its namespace keeps its name, and the
// one that wants it is refused.
func TestLivingPodKeepsItsName(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	path := filepath.Join(t.TempDir(), "ns")
	if err := os.Symlink(b.lab.Node("one").Path(), path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.try(Spec{Container: "one", Name: "web", Netns: path}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, _, err := b.try(Spec{Container: "two", Name: "web", Netns: b.lab.Node("two").Path()})
	if err == nil || !strings.Contains(err.Error(), "pod name web is taken by container one") {
		t.Errorf("the name of a pod that lives: %v", err)
	}
	if p, err := b.m.Find("web", ""); err != nil || p.Container != "one" {
		t.Errorf("web is %+v, %v", p, err)
	}
}

// TestAddressOfAPodThatEnded: a pod whose container has ended without a detach is removed when
// another one wants its address.
func TestAddressOfAPodThatEnded(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	path := filepath.Join(t.TempDir(), "ns")
	if err := os.Symlink(b.lab.Node("one").Path(), path); err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.88.0.9")}
	one, _, err := b.try(Spec{Container: "one", Netns: path, Addrs: addrs})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := b.host.Netlink().DeleteLink(int(one.Index)); err != nil {
		t.Fatal(err)
	}
	two, _, err := b.try(Spec{Container: "two", Netns: b.lab.Node("two").Path(), Addrs: addrs})
	if err != nil || two.Addrs[0] != addrs[0] {
		t.Errorf("the pod that wants the address: %+v, %v", two, err)
	}
	if p, err := b.m.Find("one", ""); err == nil {
		t.Errorf("the pod that ended is still there: %+v", p)
	}
}

// TestNamesAndContainers: a name that is the id of another container is refused, and so is the
// reverse: a command about one must not change the other. Of pods that were attached so before, the
// container comes first.
func TestNamesAndContainers(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.attach("one", Spec{Name: "db"})
	for container, name := range map[string]string{"db": "web", "two": "one"} {
		_, _, err := b.try(Spec{Container: container, Name: name, Netns: b.lab.Node("n").Path()})
		if err == nil || !strings.Contains(err.Error(), "the id of another container") {
			t.Errorf("container %s with the name %s: %v", container, name, err)
		}
	}
	b.attach("three", Spec{Name: "cache"})
	later, err := b.m.Find("cache", "")
	if err != nil {
		t.Fatal(err)
	}
	b.m.mu.Lock()
	b.m.pods[later.Key].Container = "db"
	b.m.mu.Unlock()
	if p, err := b.m.Find("db", ""); err != nil || p.Name != "cache" {
		t.Errorf("db is %+v, %v", p, err)
	}
	b.m.mu.Lock()
	b.m.pods[later.Key].Container = "three"
	b.m.mu.Unlock()
}

// TestTooManyLabels: labels are bounded, and a pod with more is refused alone.
func TestTooManyLabels(t *testing.T) {
	b := newFixture(t)
	labels := map[string]string{}
	for i := range maxLabels {
		labels[fmt.Sprint("k", i)] = "v"
	}
	b.attach("most", Spec{Labels: maps.Clone(labels)})
	labels["more"] = "v"
	_, _, err := b.try(Spec{Container: "one", Netns: b.lab.Node("c").Path(), Labels: labels})
	if err == nil || !strings.Contains(err.Error(), "33 labels; a pod has at most 32") {
		t.Errorf("33 labels: %v", err)
	}
	long := map[string]string{strings.Repeat("k", 31): strings.Repeat("v", 32)}
	_, _, err = b.try(Spec{Container: "one", Netns: b.lab.Node("d").Path(), Labels: long})
	if err == nil || !strings.Contains(err.Error(), "longer than 63 bytes") {
		t.Errorf("a label that no rule can name: %v", err)
	}
}

// TestContainerEndedWithoutAgent: a container whose runtime moves the interface itself, and that
// ended while no process was running, is removed when the next one starts; one that still runs is
// not.
func TestContainerEndedWithoutAgent(t *testing.T) {
	b := newFixture(t)
	spec := Spec{Container: "one", RuntimeMovesInterface: true}
	var end func()
	spec.Netns, end = b.processNamespace("one")
	p, _, err := b.try(spec)
	if err != nil {
		t.Fatal(err)
	}
	b.m.Close()
	b.start()
	if list := b.m.List(); len(list) != 1 {
		t.Fatalf("a container that lives: %v", list)
	}
	end() // its end of the link is still where the runtime has put it back
	b.m.Close()
	b.start()
	if left := b.traces(); len(left) != 0 || len(b.m.List()) != 0 {
		t.Errorf("left of %s: %v, %v", p.Name, left, b.m.List())
	}
}

// TestInterfaceGoneDuringAttach: the attach of a container that removes its interface meanwhile
// fails, and nothing is left. The one who watches the interfaces looks for pods that are ready, and
// did not find this one.
func TestInterfaceGoneDuringAttach(t *testing.T) {
	b := newFixture(t)
	for i, at := range []string{"guard", "labels", "inside", "host end", "carrier", "ready",
		"publish", "done"} {
		node := b.lab.Node(fmt.Sprint("c", i))
		b.m.step = func(name string) {
			if name != "attach: "+at {
				return
			}
			links, err := node.Netlink().Links()
			for _, l := range links {
				if l.Kind == LinkVeth { // it has its name from the step "inside" on
					err = errors.Join(err, node.Netlink().DeleteLink(l.Index))
				}
			}
			if err != nil || len(links) != 2 {
				t.Fatal(links, err)
			}
		}
		if _, _, err := b.try(Spec{Container: "one", Netns: node.Path()}); err == nil {
			t.Errorf("%s: the attach succeeded", at)
		}
		if left := b.traces(); len(left) != 0 || len(b.m.List()) != 0 {
			t.Errorf("%s: left behind: %v, pods %+v", at, left, b.m.List())
		}
	}
}
