//go:build netkit

package kernel

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// newNetkit is a cluster whose pods have netkits.
func newNetkit(t *testing.T, rules string) *cluster {
	t.Helper()
	nstest.RequireRoot(t)
	conn := nstest.New(t).Node("try").Netlink()
	err := conn.AddNetkit(nl.Veth{Name: "nk", PeerName: "nkp"})
	if errors.Is(err, nl.ErrNoNetkit) { // the kernels before Debian 13's
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newClusterOf(t, rules, true)
}

// hostReceived returns how many packets came to the host end of a pod.
func (v *cluster) hostReceived(r *podNode) uint64 { return v.hostCount(r, 2) }

// TestNetkit: everything that pods with veths reach, pods with netkits reach, and what they send to
// pods and NICs does not come to the host ends.
func TestNetkit(t *testing.T) {
	v := newNetkit(t, openRules)
	forwardingPaths(t, v)
	for _, r := range []*podNode{v.a, v.b} {
		if a := v.engine.links[r.endpoint.Index]; a.peer == nil || a.hook() != "tcx" {
			t.Errorf("%s: %+v", r, a)
		}
	}
	if got, sent := v.hostReceived(v.a), v.counters(v.a).PacketsOut; got*2 > sent {
		t.Errorf("of %d packets that a sent %d came to the host end", sent, got)
	}
}

func TestNetkitPublishedPorts(t *testing.T) { publishedPorts(t, newNetkit(t, openRules)) }

func TestNetkitMasquerade(t *testing.T) { masqueraded(t, newNetkit(t, openRules)) }

func TestNetkitDeniedOnEveryPath(t *testing.T) { deniedPaths(t, newNetkit(t, deniedRules)) }

func TestNetkitSpoofing(t *testing.T) {
	spoofing(t, newNetkit(t, "add allow ip from any to any\n"))
}

func TestNetkitLayoutUpgradeUnderProbes(t *testing.T) {
	v := newNetkit(t, upgradeRules)
	upgradeUnderProbes(t, v)
	if a := v.engine.links[v.a.endpoint.Index]; a == nil || a.peer == nil {
		t.Error("the new engine is not at the inner end")
	}
}

// TestNetkitNextEngine: an engine takes the inner ends of the one before over, with its own
// programs, and leaves none behind.
func TestNetkitNextEngine(t *testing.T) {
	v := newNetkit(t, openRules)
	v.serve(v.b.Node, 80)
	c, err := dialFrom(v.a.Node, "10.88.0.3:80", testTimeout)
	v.must(err)
	defer c.Close()
	v.must(echoWord(c, "before"))
	v.must(v.engine.Close())
	v.must(echoWord(c, "without an engine"))
	v.open()
	index := v.a.endpoint.Index
	if a := v.engine.links[index]; a == nil || a.peer == nil {
		t.Fatal("the inner end is not taken over")
	}
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.engine.Load(compile(t, openRules)))
	for _, r := range []*podNode{v.a, v.b} {
		v.must(v.host.Do(func() error { return v.engine.SetEndpoint(r.endpoint) }))
	}
	info, err := v.engine.links[index].peer.Info()
	v.must(err)
	if ours, err := v.engine.objects.WeirInNetkit.Info(); err != nil {
		t.Error(err)
	} else if id, _ := ours.ID(); id != info.Program {
		t.Errorf("program %d is at the inner end, not %d", info.Program, id)
	}
	v.must(echoWord(c, "after"))
	v.must(v.host.Do(func() error { return v.engine.DeleteEndpoint(index) }))
	v.must(v.host.Do(func() error { return v.engine.Detach(v.b.endpoint.Index) }))
	for _, r := range []*podNode{v.a, v.b} {
		if n := v.atInnerEnd(r); n != 0 {
			t.Errorf("%d programs are left at the inner end of %s", n, r)
		}
	}
	if left, err := filepath.Glob(filepath.Join(v.engine.dir, "netkit-*")); len(left) > 0 ||
		err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestNetkitRemove: Remove detaches from inner ends, too.
func TestNetkitRemove(t *testing.T) {
	v := newNetkit(t, openRules)
	if n := v.atInnerEnd(v.a); n != 1 {
		t.Errorf("%d programs at the inner end", n)
	}
	v.must(v.engine.Close())
	v.must(v.host.Do(func() error { return Remove(v.dir) }))
	if n := v.atInnerEnd(v.a); n != 0 {
		t.Errorf("%d programs are left at the inner end", n)
	}
}

// atInnerEnd returns how many programs are at the inner end of a pod.
func (v *cluster) atInnerEnd(r *podNode) (n int) {
	v.t.Helper()
	v.must(v.host.Do(func() error {
		all, err := link.QueryPrograms(link.QueryOptions{Target: int(r.endpoint.Index),
			Attach: ebpf.AttachNetkitPeer})
		if err == nil {
			n = len(all.Programs)
		}
		return err
	}))
	return n
}

// TestNetkitVethAfterIt: another interface may have the index of a netkit that is gone.
func TestNetkitVethAfterIt(t *testing.T) {
	v := newNetkit(t, openRules)
	e, conn := v.a.endpoint, v.host.Netlink()
	v.must(conn.DeleteLink(int(e.Index)))
	out, err := v.host.Command("ip", "link", "add", "poda", "index", fmt.Sprint(e.Index), "type",
		"veth", "peer", "name", "eth0", "netns", v.a.Path()).CombinedOutput()
	if err != nil {
		t.Fatalf("ip link add: %v: %s", err, out)
	}
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(e.Index); return err }))
	if v.engine.links[e.Index].peer != nil {
		t.Error("the inner end of a veth is taken for that of a netkit")
	}
	if left, _ := filepath.Glob(v.engine.netkitPath(e.Index)); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
