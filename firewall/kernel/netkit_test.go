package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// newNetkit is a cluster whose pods have netkits.
func newNetkit(t *testing.T, rules string) *cluster {
	t.Helper()
	nstest.Root(t)
	conn := nstest.New(t).Node("try").Netlink()
	err := conn.AddNetkit(nl.Veth{Name: "nk", PeerName: "nkp"})
	if errors.Is(err, nl.ErrNoNetkit) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return newClusterOf(t, rules, true)
}

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
	c, err := dialFrom(v.a.Node, "10.88.0.3:80", patience)
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
	// The endpoint goes, then the interface.
	v.must(v.host.Do(func() error { return v.engine.DeleteEndpoint(index) }))
	v.must(v.host.Netlink().DeleteLink(int(v.b.endpoint.Index)))
	v.must(v.host.Do(func() error { return v.engine.Detach(v.b.endpoint.Index) }))
	if left, err := filepath.Glob(filepath.Join(v.engine.dir, "netkit-*")); len(left) > 0 ||
		err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
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

// TestNetkitFalseType: a packet that a packet socket of a pod sends as one of the other family goes
// where its header says, by the stack, which corrects the type.
func TestNetkitFalseType(t *testing.T) {
	v := newNetkit(t, openRules)
	e := v.a.endpoint
	v.must(ping(v.a.Node, "192.0.2.2"))
	for i, to := range []netip.Addr{netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr("2001:db8::2")} {
		c, err := v.outside.ListenPacket("udp", netip.AddrPortFrom(to, 99).String())
		v.must(err)
		defer c.Close()
		var ip build.Layer = build.IPv4{Src: e.Addrs[0], Dst: to}
		types := []uint16{0x0800, 0x86dd}
		if i == 1 {
			ip = build.IPv6{Src: e.Addrs[1], Dst: to, HopLimit: 64}
			slices.Reverse(types)
		}
		text := enginetest.Packet(t, ip, build.UDP{SrcPort: 9, DstPort: 99},
			build.Data("with a false type"))
		frame := slices.Concat(e.HostMAC[:], e.MAC[:],
			[]byte{byte(types[0] >> 8), byte(types[0])}, text)
		v.must(injectAs(v.a.Node, frame, types[1]))
		v.must(c.SetReadDeadline(time.Now().Add(patience)))
		b := make([]byte, 100)
		if n, _, err := c.ReadFrom(b); err != nil || string(b[:n]) != "with a false type" {
			t.Errorf("%s: %q came, %v", to, b[:n], err)
		}
	}
}

// TestNetkitPastItsProgram: what a program in the pod's namespace puts at the host end, past the
// program at the inner end, is evaluated there.
func TestNetkitPastItsProgram(t *testing.T) {
	v := newNetkit(t, "add deny udp from any to any 81 in\nadd allow ip from any to any\n")
	eth0, err := v.a.Netlink().LinkByName("eth0")
	v.must(err)
	redirect, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R1, int32(eth0.Index)),
			asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return()}})
	v.must(err)
	defer redirect.Close()
	v.must(v.a.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: redirect,
			Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
	v.must(v.a.Netlink().ReplaceRoute(nl.Route{Dst: netip.MustParsePrefix("10.88.0.3/32"),
		Link: loopback, Scope: nl.ScopeLink, Src: v.a.endpoint.Addrs[0]}))
	for _, port := range []string{"81", "80"} {
		c, err := v.b.ListenPacket("udp", "10.88.0.3:"+port)
		v.must(err)
		defer c.Close()
		u, err := v.a.DialContext(t.Context(), "udp", "10.88.0.3:"+port)
		v.must(err)
		defer u.Close()
		denied := v.drops(firewall.ReasonRule)
		_, err = u.Write([]byte("past it"))
		v.must(err)
		if port == "81" {
			nstest.Eventually(t, "the rules refuse it", func() bool {
				return v.drops(firewall.ReasonRule) == denied+1
			})
			continue
		}
		v.must(c.SetReadDeadline(time.Now().Add(patience)))
		if _, _, err := c.ReadFrom(make([]byte, 10)); err != nil {
			t.Errorf("what the rules allow does not come: %v", err)
		}
	}
}

// injectAs sends a frame out of a node's eth0 as one of a type, whatever its header says.
func injectAs(n *nstest.Node, frame []byte, etherType uint16) error {
	l, err := n.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	return n.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Index,
			Protocol: etherType<<8 | etherType>>8})
	})
}
