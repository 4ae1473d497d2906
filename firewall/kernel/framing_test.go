package kernel

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestFramings: how packets come to the hooks follows from the type of the interface. A type that
// is not known is an error that names it and says what to do.
func TestFramings(t *testing.T) {
	for _, c := range []struct {
		link nl.Link
		want framing
		err  string
	}{
		{nl.Link{Encap: "ether", HardwareAddr: make(net.HardwareAddr, 6)}, ethernet, ""},
		{nl.Link{Encap: "loopback", Loopback: true}, ethernet, ""},
		{nl.Link{Encap: "none"}, bareIP, ""},
		{nl.Link{Encap: "ppp"}, bareIP, ""},
		{nl.Link{Encap: "ipip", HardwareAddr: make(net.HardwareAddr, 4)}, bareIP, ""},
		{nl.Link{Encap: "sit", HardwareAddr: make(net.HardwareAddr, 4)}, bareIP, ""},
		{nl.Link{Encap: "tunnel6", HardwareAddr: make(net.HardwareAddr, 16)}, bareIP, ""},
		{nl.Link{Encap: "gre", HardwareAddr: make(net.HardwareAddr, 4)}, bareIP, ""},
		{nl.Link{Encap: "unknown823"}, bareIP, ""},
		{nl.Link{Encap: "unknown519"}, bareIP, ""},
		{nl.Link{Encap: "infiniband", HardwareAddr: make(net.HardwareAddr, 20)}, infiniband, ""},
		{nl.Link{Encap: "gre", NoRemote: true}, 0, "remote address"},
		{nl.Link{Encap: "unknown823", NoRemote: true}, 0, "remote address"},
		{nl.Link{Encap: "fddi", HardwareAddr: make(net.HardwareAddr, 6)}, 0, `"fddi"`},
		{nl.Link{Encap: "ieee802.11/radiotap", HardwareAddr: make(net.HardwareAddr, 6)}, 0,
			"radiotap"},
		{nl.Link{Encap: "unknown280"}, 0, "unknown280"},
		{nl.Link{}, 0, "not known"},
	} {
		f, err := framingOf(c.link)
		if c.err == "" && (err != nil || f != c.want) {
			t.Errorf("%+v: %v, %v", c.link, f, err)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) ||
			!strings.Contains(err.Error(), "weir up --iface")) {
			t.Errorf("%+v: %v", c.link, err)
		}
	}
}

// tunOf makes a tun device of a type of interface and switches it on, with an address.
func tunOf(t *testing.T, n *nstest.Node, name string, encap uint16, address string) (*os.File,
	uint32) {
	t.Helper()
	var fd int
	err := n.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC,
			0); err != nil {
			return err
		}
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
			return err
		}
		return unix.IoctlSetInt(fd, unix.TUNSETLINK, int(encap))
	})
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	n.IP("addr add " + address + " dev " + name)
	n.IP("link set " + name + " up")
	return f, uint32(n.Link(name).Index)
}

// TestTypesOfInterfaces: through interfaces of each type without headers goes what the rules allow,
// and nothing else; one of a type that is not known is refused and left alone.
func TestTypesOfInterfaces(t *testing.T) {
	t.Parallel()
	g := newPairLab(t,
		"add allow udp from any to any 53\nadd deny udp from any to any\n"+
			"add allow ip from any to any\n")
	for i, c := range []struct {
		name  string
		encap uint16
		known bool
	}{
		{"none", unix.ARPHRD_NONE, true}, {"ppp", unix.ARPHRD_PPP, true},
		{"ipip", unix.ARPHRD_TUNNEL, true},
		{"ip6tnl", unix.ARPHRD_TUNNEL6, true}, {"sit", unix.ARPHRD_SIT, true},
		{"gre", unix.ARPHRD_IPGRE, true},
		{"ip6gre", 823, true}, {"rawip", 519, true}, {"can", 280, false},
		{"hdlc", unix.ARPHRD_CISCO, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			own, far := netip.AddrFrom4([4]byte{10, 9, byte(i), 1}),
				netip.AddrFrom4([4]byte{10, 9, byte(i), 2})
			f, index := tunOf(t, g.server, c.name, c.encap, own.String()+"/24")
			err := g.server.Do(func() error { _, err := g.engine.Attach(index); return err })
			if !c.known {
				if err == nil || !strings.Contains(err.Error(), "weir up --iface") ||
					slices.Contains(g.engine.Attached(), index) {
					t.Errorf("attached: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for port, passes := range map[uint16]bool{53: true, 54: false} {
				in := netip.AddrPortFrom(own, port)
				s, err := g.server.ListenPacket("udp", in.String())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				b := enginetest.Packet(t, build.IPv4{Src: far, Dst: own},
					build.UDP{SrcPort: 1000, DstPort: port}, build.Data("in"))
				if _, err := f.Write(b); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 100)
				s.SetReadDeadline(time.Now().Add(map[bool]time.Duration{true: testTimeout,
					false: 200 * time.Millisecond}[passes]))
				if _, _, err := s.ReadFrom(got); (err == nil) != passes {
					t.Errorf("in to port %d: %v", port, err)
				}
				_, err = s.WriteTo([]byte("out"),
					net.UDPAddrFromAddrPort(netip.AddrPortFrom(far, port)))
				if (err == nil) != passes && passes {
					t.Fatal(err)
				}
				if out := receivedOn(f, port, passes); out != passes {
					t.Errorf("out to port %d: came out: %v", port, out)
				}
			}
		})
	}
}

// receivedOn reports that a datagram to a port comes out of a tun device.
func receivedOn(f *os.File, port uint16, expected bool) bool {
	f.SetReadDeadline(time.Now().Add(map[bool]time.Duration{true: testTimeout,
		false: 200 * time.Millisecond}[expected]))
	b := make([]byte, 2000)
	for {
		n, err := f.Read(b)
		if err != nil {
			return false
		}
		if n >= 28 && b[0] == 0x45 && b[9] == packet.ProtoUDP &&
			uint16(b[22])<<8|uint16(b[23]) == port {
			return true
		}
	}
}

// infinibandFrame is a packet as IPoIB brings it to the hooks: the neighbour's address, which may
// hold anything at egress, the protocol and two bytes of nothing.
func infinibandFrame(neighbour []byte, ip []byte) []byte {
	frame := make([]byte, l2Infiniband, l2Infiniband+len(ip))
	copy(frame, neighbour)
	header := frameFor(ip)
	copy(frame[20:], header[len(header)-2:])
	return append(frame, ip...)
}

// TestInfinibandFrames: packets of IPoIB are evaluated as others are, in both directions, whatever
// their neighbour's address looks like.
func TestInfinibandFrames(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	e := newEngineWith(t, firewall.DefaultOptions())
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any 53 keep-state\n"+
			"add deny log ip from any to any\n")); err != nil {
		t.Fatal(err)
	}
	if e.objects.WeirInIb != nil {
		t.Error("the programs are loaded before there is an interface for them")
	}
	var programs [2]*ebpf.Program
	for d := range programs {
		p, err := e.programLocked(infiniband, d)
		if err != nil {
			t.Fatal(err)
		}
		programs[d] = p
	}
	build := func(from, to string, sp, dp uint16) []byte {
		src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
		var header build.Layer = build.IPv4{Src: src, Dst: dst}
		if src.Is6() {
			header = build.IPv6{Src: src, Dst: dst}
		}
		return enginetest.Packet(t, header, build.UDP{SrcPort: sp, DstPort: dp},
			build.Data("question"))
	}
	allowed := build("10.0.0.1", "10.0.0.2", 53, 53)
	for _, ends := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		from, to := ends[0], ends[1]
		for i, c := range []struct {
			direction int
			neighbour []byte
			ip        []byte
			want      int32
		}{
			{0, nil, build(from, to, 1000, 54), wasShot},
			{0, nil, build(from, to, 1000, 53), wentUp},
			{1, []byte{0x80, 0, 0, 9, 0xfe, 0x80}, build(to, from, 53, 1000), wentUp}, // its answer
			{1, []byte{0x80, 0, 0, 9, 0xfe, 0x80}, build(to, from, 54, 1000), wasShot},
			// an address like an allowed packet
			{1, allowed, build(from, to, 1000, 54), wasShot},
			// or like an Ethernet header
			{1, frameFor(allowed), build(from, to, 1000, 54), wasShot},
			{0, nil, build(from, to, 1000, 53)[:19], wasShot}, // cut
		} {
			ret, err := programs[c.direction].Run(
				&ebpf.RunOptions{Data: infinibandFrame(c.neighbour, c.ip)},
			)
			if err != nil || int32(ret) != c.want {
				t.Errorf("%s, packet %d: %d, want %d: %v", from, i, int32(ret), c.want, err)
			}
		}
	}
	arp := infinibandFrame(nil, make([]byte, 56))
	copy(arp[20:], []byte{8, 6})
	if ret, err := programs[0].Run(&ebpf.RunOptions{Data: arp}); err != nil ||
		int32(ret) != wentUp {
		t.Errorf("ARP: %d, %v", int32(ret), err)
	}
	all, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	for d, n := range all {
		if d.Reason >= firewall.ReasonDecode && n.Packets > 2 { // the two that were cut
			t.Errorf("%+v: %d", d, n.Packets)
		}
	}
}

// TestTakeoverOfUnknownLinkType: an earlier engine guarded an interface whose type is not known any
// more. It is left alone once the rules are in force, and nothing of it stays behind.
func TestTakeoverOfUnknownLinkType(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	f, index := tunOf(t, g.server, "tun0", unix.ARPHRD_NONE, "10.9.9.1/24")
	attach := func() error {
		return g.server.Do(func() error { _, err := g.engine.Attach(index); return err })
	}
	if err := attach(); err != nil {
		t.Fatal(err)
	}
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Netlink().SetLinkDown(int(index)); err != nil {
		t.Fatal(err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETLINK, 280) })
	if err != nil {
		t.Fatal(err)
	}
	g.open(t)
	g.interfaces(t)
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	if err := attach(); err == nil || !strings.Contains(err.Error(), "unknown280") {
		t.Errorf("attached: %v", err)
	}
	if left, err := filepath.Glob(g.engine.linkPath(index, 0)); len(left) > 0 || err != nil {
		t.Errorf("still pinned: %v, %v", left, err)
	}
	if !slices.Contains(g.engine.Attached(), g.index) ||
		slices.Contains(g.engine.Attached(), index) {
		t.Errorf("guarded: %v", g.engine.Attached())
	}
}
