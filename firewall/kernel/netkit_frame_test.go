//go:build netkit

package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"
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

// TestNetkitMark: what the program at the inner end lets up the stack passes the ingress of the
// host end by its mark, which goes. Packets with another mark are evaluated there. A frame with a
// length in place of a type is left to that ingress. The program runs here without a netkit.
func TestNetkitMark(t *testing.T) {
	nstest.RequireRoot(t)
	v := newClusterOf(t, "add allow udp from any to any in\n", false)
	e := v.engine
	v.must(e.needLocked("weir_in_netkit"))
	run := func(p *ebpf.Program, frame []byte, mark uint32) (code int32, after uint32) {
		t.Helper()
		in, out := make([]byte, 192), make([]byte, 192) // struct __sk_buff
		binary.NativeEndian.PutUint32(in[8:], mark)
		binary.NativeEndian.PutUint32(in[40:], v.a.endpoint.Index)
		v.must(v.host.Do(func() error {
			got, err := p.Run(&ebpf.RunOptions{Data: frame, Context: in, ContextOut: out})
			code = int32(got)
			return err
		}))
		return code, binary.NativeEndian.Uint32(out[8:])
	}
	frame := v.falsely(gateways[0], 0x0800)
	code, mark := run(e.objects.WeirInNetkit, frame, 0)
	if want := e.config.LocalMark ^ 2; code != -1 || mark != want {
		t.Errorf("an allowed packet: %d, mark %#x, want -1 and %#x", code, mark, want)
	}
	v.must(e.Load(compile(t, "add deny ip from any to any\n")))
	if code, after := run(e.objects.WeirIn, frame, mark); code != -1 || after != 0 {
		t.Errorf("at the host end: %d, mark %#x", code, after)
	}
	for _, other := range []uint32{0, mark ^ 4, mark ^ 1, mark ^ 1<<31} {
		if code, _ := run(e.objects.WeirIn, frame, other); code != 2 { // TC_ACT_SHOT
			t.Errorf("with mark %#x: %d", other, code)
		}
	}
	if code, _ := run(e.objects.WeirInNetkit, frame, 0); code != 2 {
		t.Errorf("a denied packet: %d", code)
	}
	if code, _ := run(e.objects.WeirInNetkit, v.falsely(gateways[0], 100), 0); code != 7 {
		t.Errorf("a frame with a length: %d, not TC_ACT_REDIRECT", code)
	}
}

// falsely is a datagram of a to port 99 of an address, in a frame of a type.
func (v *cluster) falsely(to netip.Addr, etherType uint16) []byte {
	v.t.Helper()
	e := v.a.endpoint
	var ip build.Layer = build.IPv4{Src: e.Addrs[0], Dst: to}
	if to.Is6() {
		ip = build.IPv6{Src: e.Addrs[1], Dst: to, HopLimit: 64}
	}
	return slices.Concat(e.HostMAC[:], e.MAC[:], []byte{byte(etherType >> 8), byte(etherType)},
		enginetest.Packet(v.t, ip, build.UDP{SrcPort: 9, DstPort: 99}, build.Data("false")))
}

// TestNetkitFalseType: a frame that a packet socket of a pod sends as one of another type is what
// its header says, as with a veth.
func TestNetkitFalseType(t *testing.T) {
	v := newNetkit(t, openRules)
	for to, types := range map[string][2]uint16{"192.0.2.2": {0x0800, 0x86dd},
		"2001:db8::2": {0x86dd, 0x0800}} {
		v.must(ping(v.a.Node, to))
		c, err := v.outside.ListenPacket("udp", net.JoinHostPort(to, "99"))
		v.must(err)
		defer c.Close()
		v.must(injectAs(v.a.Node, v.falsely(netip.MustParseAddr(to), types[0]), types[1]))
		v.must(c.SetReadDeadline(time.Now().Add(testTimeout)))
		b := make([]byte, 100)
		if n, _, err := c.ReadFrom(b); err != nil || string(b[:n]) != "false" {
			t.Errorf("%s: %q came, %v", to, b[:n], err)
		}
	}
}

// TestNetkitHiddenPacket: the rules do not apply to what is not IP. So the stack must not take for
// IP what a packet socket calls so and the header does not.
func TestNetkitHiddenPacket(t *testing.T) {
	v := newNetkit(t, "add deny udp from any to any 99\nadd allow ip from any to any\n")
	for _, to := range []string{"10.88.0.1", "fd00:88::1"} {
		c, err := v.host.ListenPacket("udp", net.JoinHostPort(to, "99"))
		v.must(err)
		defer c.Close()
		addr, as := netip.MustParseAddr(to), uint16(0x0800)
		if addr.Is6() {
			as = 0x86dd
		}
		for _, etherType := range []uint16{0x88b5, 100, 0x9100} {
			v.must(injectAs(v.a.Node, v.falsely(addr, etherType), as))
		}
		v.must(c.SetReadDeadline(time.Now().Add(shortWait)))
		if n, _, err := c.ReadFrom(make([]byte, 100)); err == nil {
			t.Errorf("%d bytes came to %s although the rules deny it", n, to)
		}
	}
}

// TestNetkitPastItsProgram: what a program in the pod's namespace puts at the host end, past the
// program at the inner end, is evaluated there.
func TestNetkitPastItsProgram(t *testing.T) {
	v := newNetkit(t, "add deny udp from any to any 81 in\nadd allow ip from any to any\n")
	eth0 := v.a.Link("eth0")
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
		v.must(c.SetReadDeadline(time.Now().Add(testTimeout)))
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
