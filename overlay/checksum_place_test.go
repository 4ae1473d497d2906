package overlay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestChecksumsPlace: of the packets with a pending checksum those pass that Linux makes, and none
// of which something else would be overwritten.
func TestChecksumsPlace(t *testing.T) {
	const alone, tcp4, tcp6, udp = unix.VIRTIO_NET_HDR_GSO_NONE, unix.VIRTIO_NET_HDR_GSO_TCPV4,
		unix.VIRTIO_NET_HDR_GSO_TCPV6, unix.VIRTIO_NET_HDR_GSO_UDP_L4
	v4 := build.IPv4{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2")}
	v6 := build.IPv6{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2")}
	options, first, later := v4, v4, v4
	options.Options = []byte{0x94, 4, 0, 0}
	first.Flags, later.FragOff = packet.FragMF, 8
	data := build.Data(make([]byte, 200))
	datagram, segment := build.UDP{SrcPort: 1, DstPort: 53},
		build.TCP{SrcPort: 1, DstPort: 80, Flags: packet.FlagACK}
	for _, c := range []struct {
		what          string
		kind          uint8
		start, offset uint16
		passes        bool
		layers        []build.Layer
	}{
		{"UDP", alone, 20, 6, true, []build.Layer{v4, datagram, data}},
		{"UDP", alone, 40, 6, true, []build.Layer{v6, datagram, data}},
		{"behind options", alone, 24, 6, true, []build.Layer{options, datagram, data}},
		{"TCP", alone, 20, 16, true, []build.Layer{v4, segment, data}},
		{"behind a header", alone, 48, 16, true,
			[]build.Layer{v6, build.Destination{}, segment, data}},
		{"ICMPv6", alone, 40, 2, true, []build.Layer{v6, build.ICMPv6{Type: 128}, data}},
		{"TCP in VXLAN", alone, 70, 16, true, []build.Layer{v4, datagram, data}},
		{"GRE", alone, 20, 4, true, []build.Layer{v4, build.Upper(47), data}},
		{"TCP in IP", alone, 40, 16, true, []build.Layer{v4, build.Upper(4), data}},
		{"TCP, GSO", tcp4, 20, 16, true, []build.Layer{v4, segment, data}},
		{"TCP, GSO", tcp6, 40, 16, true, []build.Layer{v6, segment, data}},
		{"TCP, GSO, ECN", tcp4 | unix.VIRTIO_NET_HDR_GSO_ECN, 20, 16, true,
			[]build.Layer{v4, segment, data}},
		{"UDP, GSO", udp, 20, 6, true, []build.Layer{v4, datagram, data}},

		{"UDP's port", alone, 20, 2, false, []build.Layer{v4, datagram, data}},
		{"a port, from the front", alone, 0, 22, false, []build.Layer{v4, datagram, data}},
		{"the source", alone, 8, 14, false, []build.Layer{v6, datagram, data}},
		{"the destination", alone, 24, 14, false, []build.Layer{v6, datagram, data}},
		{"TCP's port", alone, 20, 2, false, []build.Layer{v4, segment, data}},
		{"TCP's flags", alone, 20, 12, false, []build.Layer{v4, segment, data}},
		{"data of TCP", alone, 40, 16, false, []build.Layer{v4, segment, data}},
		{"SCTP", alone, 20, 8, false, []build.Layer{v4, build.SCTP{SrcPort: 1}, data}},
		{"a first fragment", alone, 20, 6, false, []build.Layer{first, datagram, data}},
		{"a later one", alone, 20, 6, false, []build.Layer{later, build.Upper(17), data}},
		{"TCP elsewhere, GSO", tcp4, 16, 16, false, []build.Layer{v4, segment, data}},
		{"in VXLAN, GSO", tcp4, 70, 16, false, []build.Layer{v4, datagram, data}},
		{"TCP as UDP, GSO", udp, 20, 6, false, []build.Layer{v4, segment, data}},
	} {
		p, err := build.Packet(c.layers...)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		v := vnet{flags: 1, kind: c.kind, csumStart: c.start, csumFrom: c.offset}
		if got := v.inPlace(p); got != c.passes {
			t.Errorf("%s, IPv%d: passes is %v", c.what, p[0]>>4, got)
		}
		if v = (vnet{csumStart: c.start, csumFrom: c.offset}); !v.inPlace(p) {
			t.Errorf("%s, IPv%d: refused with nothing pending", c.what, p[0]>>4)
		}
	}
}

// TestNothingChangesBehindTheFilter: a pod cannot have the checksum of its packet written over a
// port that the filter has passed.
func TestNothingChangesBehindTheFilter(t *testing.T) {
	var w portWorker // refuses port 4001
	first := true
	a, b := pair(t, func(c *Config) {
		if first { // the other end takes what comes
			c.Filter = FilterBy(&w, func() time.Duration { return 0 }, nil)
		}
		first = false
	}, func(p *Peer) {
		if p.Name == "a" {
			p.Pods = append(p.Pods, netip.MustParsePrefix("10.96.0.0/24"))
		}
	})
	echo(t, a, b, 100)
	lab := nstest.New(t)
	pod := lab.Node("pod")
	lab.Join(a.Node, "host", "10.96.0.1/24", pod, "eth0", "10.96.0.2/24")
	a.Sysctl("net.ipv4.ip_forward", "1")
	var listeners []net.PacketConn
	for _, port := range []string{"4000", "4001"} {
		c, err := b.ListenPacket("udp", b.addr+":"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		listeners = append(listeners, c)
	}
	send := vnetSender(t, a.Node, pod)
	legitimate := func() {
		t.Helper()
		p := podDatagram(4000)
		binary.BigEndian.PutUint16(p[26:], segmentOf(p).pseudo(p, len(p)-20))
		send(vnet{flags: 1, csumStart: 34, csumFrom: udpChecksumAt}, p)
		listeners[0].SetReadDeadline(time.Now().Add(testTimeout))
		if _, _, err := listeners[0].ReadFrom(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	legitimate()
	p := podDatagram(4000)
	sum := tun.Checksum(p[20:], 0) // with the port, which is where the result goes
	wanted := binary.BigEndian.AppendUint16(nil, ^uint16(4001))
	binary.BigEndian.PutUint16(p[28:], tun.Checksum(wanted, ^sum))
	send(vnet{flags: 1, csumStart: 34, csumFrom: 2}, p)
	legitimate() // behind it
	listeners[1].SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, _, err := listeners[1].ReadFrom(make([]byte, 100)); err == nil {
		t.Error("a datagram came through to the port that the filter refuses")
	}
	if s := a.dev.Stats(); s.Misplaced != 1 {
		t.Errorf("%d packets are counted, want 1", s.Misplaced)
	}
}

// podDatagram is a datagram of the pod without a checksum, and with two bytes of 0 in front of what
// it carries.
func podDatagram(port uint16) []byte {
	p, _ := gsoDatagram(false, 40)
	copy(p[12:], []byte{10, 96, 0, 2, 10, 99, 0, 2})
	binary.BigEndian.PutUint16(p[10:], ^tun.Checksum(p[:20], 0))
	binary.BigEndian.PutUint16(p[22:], port)
	clear(p[26:30])
	return p
}

// vnetSender returns what sends packets of a pod to its host, each with a struct virtio_net_hdr.
func vnetSender(t *testing.T, host, pod *nstest.Node) func(v vnet, p []byte) {
	t.Helper()
	card := func(n *nstest.Node, name string) (i *net.Interface) {
		err := n.Do(func() (err error) {
			i, err = net.InterfaceByName(name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	to, from, fd := card(host, "host"), card(pod, "eth0"), -1
	err := pod.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: from.Index}); err != nil {
		t.Fatal(err)
	}
	return func(v vnet, p []byte) {
		t.Helper()
		frame := make([]byte, vnetSize)
		v.put(frame)
		frame = append(append(frame, to.HardwareAddr...), from.HardwareAddr...)
		if _, err := unix.Write(fd, append(append(frame, 8, 0), p...)); err != nil {
			t.Fatal(err)
		}
	}
}
