package kernel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet/build"
)

// TestUDPLiteChecksumIsNeverZero: a translated UDP-Lite datagram whose checksum comes to 0 bears
// 0xffff, which means the same: 0 is not allowed (RFC 3828 section 3.1).
func TestUDPLiteChecksumIsNeverZero(t *testing.T) {
	v := newCluster(t, openRules)
	v.masquerade(61000, 61999)
	a := v.a.endpoint
	for i, network := range []string{"ip4:136", "ip6:136"} {
		hidden := netip.MustParseAddr([]string{"192.0.2.1", "2001:db8::1"}[i])
		there := netip.MustParseAddr([]string{"192.0.2.2", "2001:db8::2"}[i])
		v.must(ping(v.a.Node, there.String())) // the neighbour is known
		mustBuild := func(from netip.Addr, text uint16) (ip, checksum []byte) {
			var header build.Layer = build.IPv4{Src: from, Dst: there, TTL: 64}
			at := 20
			if from.Is6() {
				header, at = build.IPv6{Src: from, Dst: there, HopLimit: 64}, 40
			}
			b := enginetest.Packet(v.t, header,
				build.UDPLite{SrcPort: 61500, DstPort: 9, Coverage: 8 + 2},
				build.Data(binary.BigEndian.AppendUint16(nil, text)))
			return b, b[at+6 : at+8]
		}
		var frame []byte
		for text := range 1 << 16 {
			if _, sum := mustBuild(hidden, uint16(text)); binary.BigEndian.Uint16(sum) != 0xffff &&
				binary.BigEndian.Uint16(sum) != 0 {
				continue
			}
			ip, _ := mustBuild(a.Addrs[i], uint16(text))
			frame = slices.Concat(a.HostMAC[:], a.MAC[:],
				[]byte{[]byte{8, 0x86}[i], []byte{0, 0xdd}[i]}, ip)
			break
		}
		c, err := v.outside.ListenPacket(network, "")
		v.must(err)
		v.must(inject(v.a.Node, [][]byte{frame}))
		v.must(c.SetReadDeadline(time.Now().Add(testTimeout)))
		b := make([]byte, 100)
		n, from, err := c.ReadFrom(b)
		v.must(err)
		if n < 10 || from.String() != hidden.String() || binary.BigEndian.Uint16(b[6:]) != 0xffff {
			t.Errorf("%s: from %s: % x", network, from, b[:n])
		}
		v.must(c.Close())
	}
	if n := v.drops(firewall.ReasonNATPorts); n != 0 {
		t.Errorf("%d packets were not translated", n)
	}
}
