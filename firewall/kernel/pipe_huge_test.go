package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// sendSegments has the client send an IPv6 packet of TCP by a packet socket. The kernel is to cut
// it into segments of one byte behind so many bytes of headers.
func (g *pairLab) sendSegments(t *testing.T, p []byte, head int) {
	t.Helper()
	g.must(t, g.client.Do(func() error {
		from, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: from.Index}); err != nil {
			return err
		}
		const ethernet, tcp = 14, 20
		frame := []byte{unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_TCPV6}
		for _, n := range []int{ethernet + head, 1, ethernet + head - tcp, 16} {
			frame = binary.NativeEndian.AppendUint16(frame, uint16(n))
		}
		frame = append(frame, g.mac(t, g.server)...)
		frame = append(append(frame, from.HardwareAddr...), 0x86, 0xdd)
		_, err = unix.Write(fd, append(frame, p...))
		return err
	}))
}

// mac returns the address of a node's NIC.
func (g *pairLab) mac(t *testing.T, n *nstest.Node) (a net.HardwareAddr) {
	t.Helper()
	l, err := n.Netlink().LinkByName("eth0")
	g.must(t, err)
	return l.HardwareAddr
}

// TestHugePacketsCostTheMost: any container with a packet socket can send a GSO packet of tiny
// segments with long headers. It has more bytes on the wire than a pipe of a low bandwidth carries
// in the times that 64 bits hold. It does not cost less than a shorter one.
func TestHugePacketsCostTheMost(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "pipe 1 config bw 1Kbit/s\nadd 10 pipe 1 tcp from any to any 4000 in\n"+
		"add 20 allow ip from any to any\n")
	p := enginetest.Packet(t, build.IPv6{Src: netip.MustParseAddr("fd00::2"),
		Dst: netip.MustParseAddr("fd00::1"), HopLimit: 64},
		build.Destination{Options: make([]byte, 2000)},
		build.TCP{SrcPort: 4000, DstPort: 4000, Flags: packet.FlagACK, Window: 1, Partial: true},
		build.Data(make([]byte, 60_000)))
	g.sendSegments(t, p, len(p)-60_000)
	pipe := g.engine.ids.byKey[g.engine.prog.Pipes[0].Key] & 0xffff
	nstest.Eventually(t, "the packet comes", func() bool {
		rules, err := g.engine.Rules()
		g.must(t, err)
		return rules[0].Packets > 0
	})
	var full int64
	g.must(t, g.engine.objects.RuleRates.Lookup(pipe, &full))
	if left := time.Duration(full - g.engine.now()); left < program.MaxCost-time.Hour ||
		left > program.MaxCost {
		t.Errorf("the pipe is full again in %v", left)
	}
}
