package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

func web(addr string) cluster.Label {
	return cluster.Label{Table: "app=web", Addr: netip.MustParseAddr(addr)}
}

func pod(name, addr string) cluster.Pod {
	return cluster.Pod{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		Labels: map[string]string{"app": "web"}}
}

// TestPodsOfOthers: a pod of one host is in the tables of the others, and only of the others; each
// change is one change of a table; a restart writes nothing.
func TestPodsOfOthers(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	dir := t.TempDir()
	b := l.start("b", dir, 2, newParts(), false)
	var pods []cluster.Pod
	for i := range 70 {
		pods = append(pods, pod(fmt.Sprint("p", i), fmt.Sprintf("10.0.2.%d", i+1)))
	}
	b.SetPods(pods)
	has := func(p *parts, n int) func() bool {
		return func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.labels) == n
		}
	}
	nstest.Eventually(t, "70 pods", has(a.parts, 70))
	if a.parts.calls != 70 || len(b.parts.labels) != 0 {
		t.Errorf("%d changes; the host itself has %d", a.parts.calls, len(b.parts.labels))
	}
	b.SetPods(pods[1:])
	nstest.Eventually(t, "one is gone", has(a.parts, 69))
	if a.parts.calls != 71 {
		t.Errorf("%d changes for one pod", a.parts.calls-70)
	}
	read := func() store.Snapshot {
		s, err := l.model.Read(t.Context(), cluster.PodsTree, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := read()
	b.stop()
	b = l.start("b", dir, 2, b.parts, false)
	nstest.Eventually(t, "the report is written", func() bool { return l.reportOf("b").Weir != "" })
	time.Sleep(3 * gather)
	for i, e := range read().Entries {
		if e.Revision != before.Entries[i].Revision {
			t.Errorf("%s is written again", e.Key)
		}
	}
	b.SetPods(nil)
	nstest.Eventually(t, "none is left", has(a.parts, 0))
	for _, e := range read().Entries {
		if len(e.Value) > 0 {
			t.Errorf("%s has %s", e.Key, e.Value)
		}
	}
}

// TestEndpoints: they are signed with a rising number, also after a restart and after the store was
// put back.
func TestEndpoints(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	dir := t.TempDir()
	b := l.start("b", dir, 2, newParts(), false)
	for port := range uint16(3) {
		at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 51820+port)
		b.SetEndpoints([]netip.AddrPort{at})
		nstest.Eventually(t, "the endpoint", func() bool {
			a.parts.mu.Lock()
			defer a.parts.mu.Unlock()
			return slices.Equal(a.parts.hosts["b"].Addrs, []netip.AddrPort{at})
		})
		b.stop()
		b = l.start("b", dir, 2, newParts(), false)
	}
	if n := a.Status().Claims; n > 0 {
		t.Errorf("%d values of the store are refused", n)
	}
}

// TestStolenHost: what another host writes beyond its rights has no effect, and is counted.
func TestStolenHost(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	n := l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	stolen := newDirect(l.model, "b")
	for _, key := range []string{cluster.HeadKey, cluster.NodeTree + "b", cluster.PodsTree +
		"a/0000",
		cluster.RemovedTree + "node/a"} {
		if _, err := stolen.Commit(t.Context(),
			store.Txn{Put: []store.Entry{{Key: key}}}); !errors.Is(err,
			store.ErrPermission) {
			t.Errorf("%s: %v", key, err)
		}
	}
	foreign := &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.1.1")}}
	if _, err := stolen.Commit(t.Context(), store.Txn{Put: []store.Entry{
		l.entry(cluster.PodsTree+"b/0000", foreign)}}); err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "the claim is counted", func() bool { return a.Status().Claims == 1 })
	if len(a.parts.labels) > 0 {
		t.Errorf("tables: %v", a.parts.labels)
	}
	l.put(cluster.PodsTree+"b/0000", &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.2.1")}})
	nstest.Eventually(t, "its own pod", func() bool { return a.hasLabel(web("10.0.2.1")) })
	l.commit(store.Txn{Put: []store.Entry{l.entry(cluster.RemovedTree+"node/b",
		&cluster.RemovalRecord{Serials: []cluster.Serial{n.Serial}})}, Delete: []string{
		cluster.NodeTree + "b", cluster.PodsTree + "b/0000"}})
	nstest.Eventually(t, "the host is removed", func() bool {
		a.parts.mu.Lock()
		defer a.parts.mu.Unlock()
		return len(a.parts.labels) == 0 && a.parts.hosts["b"].Node == nil
	})
}

func (r *running) hasLabel(l cluster.Label) bool {
	r.parts.mu.Lock()
	defer r.parts.mu.Unlock()
	return r.parts.labels[l]
}

// TestStartWithoutStore: a host begins with the tables and the last confirmed rules of its disk,
// never with those on trial.
func TestStartWithoutStore(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	l.put(cluster.PodsTree+"b/0000", &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.2.1")}})
	member := cluster.Member{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Value: 7}
	l.put(cluster.BucketKey("bad", member.Prefix),
		&cluster.Members{Members: []cluster.Member{member}})
	dir := t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	good := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the first version", func() bool { return a.parts.now() == good })
	trial := l.load("add 100 deny udp from any to any\n", time.Hour)
	nstest.Eventually(t, "the trial", func() bool { return a.parts.now() == trial })
	a.stop()
	p := newParts()
	a = l.start("a", dir, 1, p, true)
	if a.parts.now() != good || !a.hasLabel(web("10.0.2.1")) ||
		p.shared[cluster.SharedMember{Table: "bad", Prefix: member.Prefix}] != 7 {
		t.Errorf("after a start: %q, %v, %v", a.parts.now(), p.labels, p.shared)
	}
	nstest.Eventually(t, "the peer", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.hosts["b"].Node != nil
	})
	time.Sleep(50 * time.Millisecond)
	if a.parts.now() != good {
		t.Error("without a store it begins with the version on trial")
	}
	l.confirm()
	a.client.away(false)
	nstest.Eventually(t, "the confirmed version", func() bool { return a.parts.now() == trial })
}

// TestLostCopy: a host whose copy is lost keeps what an earlier run left, its rules and its peers
// too, until it hears the store. Only then is anything taken away.
func TestLostCopy(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	dir, p := t.TempDir(), newParts()
	a := l.start("a", dir, 1, p, false)
	good := l.load("add 100 allow tcp from any to any\n", 0)
	has := func(name string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.hosts[name].Node != nil
	}
	nstest.Eventually(t, "the first version", func() bool { return a.parts.now() == good })
	nstest.Eventually(t, "the peer", func() bool { return has("b") })
	a.stop()
	for _, name := range []string{"copy", "copy.before", "log", "log.before"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	p.mu.Lock()
	p.copied, p.hosts["gone"] = 0, cluster.HostChange{Name: "gone", Node: new(cluster.Node)}
	p.mu.Unlock()
	a = l.start("a", dir, 1, p, true)
	time.Sleep(50 * time.Millisecond)
	if a.parts.now() != good || a.HasCopy() || p.copied > 0 || !has("b") || !has("gone") {
		t.Errorf("%q, copy %v %d, peers %v", a.parts.now(), a.HasCopy(), p.copied, p.hosts)
	}
	a.client.away(false)
	nstest.Eventually(t, "the store is heard", a.HasCopy)
	nstest.Eventually(t, "a host that is gone is not a peer", func() bool { return !has("gone") })
	if !has("b") || p.copied != 1 {
		t.Errorf("%d first copies, peers %v", p.copied, p.hosts)
	}
}

// TestTrial: unconfirmed rules go back on each host by its own timer, also on one that is cut off.
// Confirmed ones stay, and half-way each host reports that it is connected.
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trial = 4 * time.Second
		l := newLab(t)
		l.join("a", 1, "10.0.1.0/24")
		l.join("b", 2, "10.0.2.0/24")
		a := l.start("a", t.TempDir(), 1, newParts(), false)
		b := l.start("b", t.TempDir(), 2, newParts(), false)
		both := func(what, text string) {
			t.Helper()
			nstest.Eventually(t, what, func() bool {
				return a.parts.now() == text && b.parts.now() == text
			})
		}
		first := l.load("add 100 allow tcp from any to any\n", 0)
		both("the first version", first)
		second := l.load("add 200 allow udp from any to any\n", trial)
		both("the trial", second)
		b.client.away(true) // the rules cut it off
		nstest.Eventually(t, "the other one reports half-way", func() bool {
			return l.reportOf("a").Connected
		})
		if l.reportOf("b").Connected {
			t.Error("a host that is cut off reports")
		}
		l.confirm()
		nstest.Eventually(t, "the host that was cut off goes back", func() bool {
			return b.parts.now() == first
		})
		time.Sleep(1200 * time.Millisecond) // the other one's timer began at about the same time
		if a.parts.now() != second {
			t.Error("confirmed rules went back")
		}
		b.client.away(false)
		both("the confirmed version", second)
		third := l.load("add 300 allow icmp from any to any\n", trial)
		both("another trial", third)
		both("both go back", second)
		nstest.Eventually(t, "the report", func() bool { return l.reportOf("a").Refused != nil })
		time.Sleep(50 * time.Millisecond)
		both("the version is not tried again", second)
		revert := l.head.Trial.Revert
		l.head = revert
		l.put(cluster.HeadKey, &revert)
		nstest.Eventually(t, "the store goes back", func() bool {
			r := l.reportOf("a")
			return r.Refused == nil && r.Enforced == revert.Number
		})
		both("the same rules", second)
	})
}

// TestVersionThatCannotBe: a host keeps what it has and says why.
func TestVersionThatCannotBe(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24", "web")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	a.parts.cutsOff = "500"
	good := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the first version", func() bool { return a.parts.now() == good })
	reason := func(want string) {
		t.Helper()
		nstest.Eventually(t, want, func() bool {
			r := l.reportOf("a")
			return r.Refused != nil && *r.Refused == l.head.Number && strings.Contains(r.Why, want)
		})
		if a.parts.now() != good {
			t.Errorf("in force: %q", a.parts.now())
		}
	}
	digest, texts, err := cluster.EncodeText("add 100 deny ip from any to any\n")
	if err != nil {
		t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: l.head.Scopes[cluster.All],
		cluster.RoleScope("web"): digest}, "test", 0)
	l.commit(store.Txn{Put: append(texts, l.entry(cluster.HeadKey, &l.head))})
	reason("rule 100 is in scope all")
	set := "add 500 deny ip from any to any\n"
	digest, texts, err = cluster.EncodeText(set)
	if err != nil {
		t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: digest}, "test", 0)
	l.commit(store.Txn{Put: append(texts, l.entry(cluster.HeadKey, &l.head))})
	reason("would cut this host off")
	digest, texts, err = cluster.EncodeText("add 100 alow ip\n")
	if err != nil {
		t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: digest}, "test", 0)
	l.commit(store.Txn{Put: append(texts, l.entry(cluster.HeadKey, &l.head))})
	reason("alow")
	l.put(cluster.BucketKey("bad", netip.MustParsePrefix("192.0.2.0/24")), &cluster.Members{
		Members: []cluster.Member{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}})
	const define = "table bad create\nadd 100 deny ip from table(bad) to any\n"
	digest, texts, err = cluster.EncodeText(define)
	if err != nil {
		t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: digest}, "test", 0)
	l.commit(store.Txn{Put: append(texts, l.entry(cluster.HeadKey, &l.head))})
	reason("table bad is a shared one")
	loads := a.parts.loads
	digest, texts, err = cluster.EncodeText("add 7 deny ip from any to any\n")
	if err != nil {
		t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{
		cluster.All:             cluster.TextDigest("add 100 allow tcp from any to any\n"),
		cluster.RoleScope("db"): digest}, "test", 0)
	l.commit(store.Txn{Put: append(texts, l.entry(cluster.HeadKey, &l.head))})
	nstest.Eventually(t, "a version of another role", func() bool {
		r := l.reportOf("a")
		return r.Refused == nil && r.Enforced == l.head.Number
	})
	if a.parts.now() != good || a.parts.loads != loads {
		t.Error("rules that do not concern the host were loaded")
	}
	l.join("a", 1, "10.0.1.0/24", "db")
	nstest.Eventually(t, "the host gets the role", func() bool {
		return strings.Contains(a.parts.now(), "7 deny")
	})
}

// TestEmptiedStore: nothing is taken away, the rules neither, and a start keeps it so; accepting
// removes it.
func TestEmptiedStore(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	l.put(cluster.PodsTree+"b/0000", &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.2.1")}})
	dir := t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	good := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the version", func() bool { return a.parts.now() == good })
	l.model.Rewind(0)
	nstest.Eventually(t, "the removals are held", func() bool { return a.Status().Held == 5 })
	for range 2 {
		a.parts.mu.Lock()
		peer := a.parts.hosts["b"].Node
		a.parts.mu.Unlock()
		if !a.hasLabel(web("10.0.2.1")) || peer == nil || a.parts.now() != good {
			t.Errorf("enforced: %v, %v, %q", a.parts.labels, peer, a.parts.now())
		}
		p := a.parts
		a.stop()
		a = l.start("a", dir, 1, p, false)
		if a.Status().Held != 5 {
			t.Errorf("after a start %d are held", a.Status().Held)
		}
	}
	l.put(cluster.PodsTree+"b/0001", &cluster.Pods{Pods: []cluster.Pod{pod("y", "10.0.2.2")}})
	nstest.Eventually(t, "additions count", func() bool { return a.hasLabel(web("10.0.2.2")) })
	a.Accept()
	if a.Status().Held != 0 || a.hasLabel(web("10.0.2.1")) {
		t.Errorf("after accepting: %+v, %v", a.Status(), a.parts.labels)
	}
	if a.parts.now() != good {
		t.Error("accepting takes the rules away")
	}
}

// TestOldBackup: a store that was put back without a new epoch does not bring an old version; with
// one it does.
func TestOldBackup(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	dir := t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	old := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the version", func() bool { return a.parts.now() == old })
	s, err := l.model.Read(t.Context(), cluster.Watched, 0)
	if err != nil {
		t.Fatal(err)
	}
	backup, head := s.Revision, l.head
	good := l.load("add 200 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "a newer version", func() bool {
		return a.parts.now() == good && l.reportOf("a").Enforced == l.head.Number
	})
	l.model.Rewind(backup)
	nstest.Eventually(t, "the old version is refused", func() bool { return a.Status().Claims > 0 })
	a.stop()
	a = l.start("a", dir, 1, newParts(), false)
	if a.parts.now() != good {
		t.Errorf("in force: %q", a.parts.now())
	}
	head.Number = cluster.Number{Epoch: 2, Count: 1}
	l.commit(store.Txn{Put: []store.Entry{l.entry(cluster.HeadKey, &head), l.entry(
		cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: 2})}})
	nstest.Eventually(t, "the restored version", func() bool { return a.parts.now() == old })
}

// TestPartThatFails: what a part does not take is given again.
func TestPartThatFails(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	a.parts.mu.Lock()
	a.parts.failing = errors.New("no memory")
	a.parts.mu.Unlock()
	l.put(cluster.PodsTree+"b/0000", &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.2.1")}})
	nstest.Eventually(t, "it is a problem", func() bool {
		return len(a.config.Problems.All()) == 1
	})
	a.parts.mu.Lock()
	a.parts.failing = nil
	a.parts.mu.Unlock()
	nstest.Eventually(t, "it is given again", func() bool {
		return a.hasLabel(web("10.0.2.1")) && len(a.config.Problems.All()) == 0
	})
}

// TestDamagedLocal: without knowing who was removed, a host does not begin.
func TestDamagedLocal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "revoked"), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.ReadLocal(dir); err == nil {
		t.Error("a damaged file is taken for an empty one")
	}
}

// TestWriteThatIsLost: a host's write that was answered is gone with a store that is put back. The
// host had not yet heard of it, so that the store has what its copy has. It writes it again.
func TestWriteThatIsLost(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	podsOf := func() int {
		s, err := l.model.Read(t.Context(), cluster.PodsTree+"a/0000", 0)
		if err != nil || len(s.Entries) == 0 || len(s.Entries[0].Value) == 0 {
			return 0
		}
		p, err := cluster.Decode[cluster.Pods](s.Entries[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		return len(p.Pods)
	}
	a.SetPods([]cluster.Pod{pod("p1", "10.0.1.1")})
	nstest.Eventually(t, "the store has a pod", func() bool { return podsOf() == 1 })
	s, err := l.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "the copy has it", func() bool {
		return a.Status().Revision >= s.Revision
	})
	a.client.setStalled(true)
	a.SetPods([]cluster.Pod{pod("p1", "10.0.1.1"), pod("p2", "10.0.1.2")})
	nstest.Eventually(t, "the store has two", func() bool { return podsOf() == 2 })
	time.Sleep(50 * time.Millisecond) // the host knows that it has
	l.model.Rewind(s.Revision)
	l.epoch++
	l.put(cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: l.epoch})
	a.client.setStalled(false)
	nstest.Eventually(t, "the store has two again", func() bool { return podsOf() == 2 })
}
