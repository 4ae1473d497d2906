package kernel

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// related sends ICMP errors of every kind from the outside about a datagram as it was on the wire.
func (v *cluster) related(router, to, quoted netip.Addr, quotedTo netip.AddrPort, port uint16) {
	v.t.Helper()
	nic := v.host.Link("eth0")
	mine := v.outside.Link("eth0")
	udp := build.UDP{SrcPort: port, DstPort: quotedTo.Port()}
	var frames [][]byte
	add := func(layers ...build.Layer) {
		b := enginetest.Packet(v.t, layers...)
		kind := []byte{8, 0}
		if to.Is6() {
			kind = []byte{0x86, 0xdd}
		}
		frames = append(frames, slices.Concat(nic.HardwareAddr, mine.HardwareAddr, kind, b))
	}
	if to.Is4() {
		quote := enginetest.Packet(v.t, build.IPv4{Src: quoted, Dst: quotedTo.Addr()}, udp,
			build.Data("word"))
		for _, typ := range []uint8{3, 4, 5, 11, 12} {
			add(build.IPv4{Src: router, Dst: to}, build.ICMP{Type: typ, Code: 1},
				build.Data(quote))
		}
	} else {
		quote := enginetest.Packet(v.t, build.IPv6{Src: quoted, Dst: quotedTo.Addr()}, udp,
			build.Data("word"))
		for _, typ := range []uint8{1, 2, 3, 4} {
			add(build.IPv6{Src: router, Dst: to}, build.ICMPv6{Type: typ}, build.Data(quote))
		}
	}
	v.must(inject(v.outside, frames))
}

// TestErrorsReachTheQuotedHost lets errors about the flows of one pod reach it, masqueraded or
// published or neither, and none to another pod.
func TestErrorsReachTheQuotedHost(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"as it is", "masqueraded", "published"} {
		t.Run(way, func(t *testing.T) {
			v := newCluster(t,
				"add 1 check-state\nadd allow udp from any to any in recv pod:a keep-state\n"+
					"add allow udp from any to any 80 in recv eth0 keep-state\n"+
					"add deny ip from any to any\n")
			v.serve(v.a.Node, 80)
			switch way {
			case "masqueraded":
				v.masquerade(61000, 61999)
			case "published":
				v.publish(8080, 80)
			}
			for i, outside := range []string{"192.0.2.2", "2001:db8::2"} {
				v.errorsReach(t, i, way == "published", netip.MustParseAddr(outside))
			}
		})
	}
}

// errorsReach has the pod a and the outside talk in a family, and sends errors about that.
func (v *cluster) errorsReach(t *testing.T, family int, published bool, outside netip.Addr) {
	t.Helper()
	pc, err := v.outside.ListenPacket("udp", netip.AddrPortFrom(outside, 9000).String())
	v.must(err)
	defer pc.Close()
	v.must(pc.SetDeadline(time.Now().Add(testTimeout)))
	peer := netip.AddrPortFrom(outside, 9000)
	if published {
		to := []string{"192.0.2.1:8080", "[2001:db8::1]:8080"}[family]
		_, err = pc.WriteTo([]byte("word"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	} else {
		var c net.Conn
		c, err = v.a.DialContext(t.Context(), "udp", peer.String())
		v.must(err)
		defer c.Close()
		_, err = c.Write([]byte("word"))
	}
	v.must(err)
	_, from, err := pc.ReadFrom(make([]byte, 10))
	v.must(err)
	wire := from.(*net.UDPAddr).AddrPort() // the pod as it is on the wire
	wire = netip.AddrPortFrom(wire.Addr().Unmap(), wire.Port())

	routers := []netip.Addr{outside,
		netip.MustParseAddr([]string{"203.0.113.7", "2001:db8:7::7"}[family])}
	each := []int{5, 4}[family]
	synced, outsiders := errorsReceived(t, v.a, family), errorsReceived(t, v.b, family)
	for _, router := range routers {
		v.related(router, wire.Addr(), wire.Addr(), peer, wire.Port())
		v.related(router, v.b.endpoint.Addrs[family], wire.Addr(), peer, wire.Port())
	}
	v.related(outside, wire.Addr(), wire.Addr(), peer, wire.Port()) // behind all others
	nstest.Eventually(t, outside.String()+": errors reach the pod", func() bool {
		return errorsReceived(t, v.a, family) == synced+3*each
	})
	if n := errorsReceived(t, v.b, family); n != outsiders {
		t.Errorf("%s: %d errors reached another pod", outside, n-outsiders)
	}
}

// errorsReceived returns how many ICMP errors a pod has received whose checksums were right.
func errorsReceived(t *testing.T, r *podNode, family int) (sum int) {
	t.Helper()
	name := []string{"snmp", "snmp6"}[family]
	out, err := r.Command("cat", "/proc/self/net/"+name).Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	if family == 0 { // a line of names, and one of values
		at := slices.Index(fields, "Icmp:")
		values := fields[at+1:]
		values = values[slices.Index(values, "Icmp:")+1:]
		for i, name := range fields[at+1:] {
			switch name {
			case "InDestUnreachs", "InTimeExcds", "InParmProbs", "InSrcQuenchs", "InRedirects":
				n, err := strconv.Atoi(values[i])
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			case "Icmp:":
				return sum
			}
		}
	}
	for i, name := range fields {
		switch name {
		case "Icmp6InDestUnreachs", "Icmp6InPktTooBigs", "Icmp6InTimeExcds", "Icmp6InParmProblems":
			n, err := strconv.Atoi(fields[i+1])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
