package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// inject sends frames from a node's eth0 as they are.
func inject(n *nstest.Node, frames [][]byte) error {
	link, err := n.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	return n.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, f := range frames {
			err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: link.Index})
			if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("send a frame of %d bytes: %w", len(f), err)
			}
		}
		return nil
	})
}

// asks is an ARP request for the gateway from anybody.
func asks(mac [6]byte, from netip.Addr) []byte {
	f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac[:]...)
	f = append(f, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	f = append(append(f, mac[:]...), from.AsSlice()...)
	return append(append(f, 0, 0, 0, 0, 0, 0), gateways[0].AsSlice()...)
}

// solicits is a neighbour solicitation for the gateway from anybody.
func solicits(t *testing.T, mac [6]byte, from netip.Addr) []byte {
	t.Helper()
	body := append(append(gateways[1].AsSlice(), 1, 1), mac[:]...)
	b := enginetest.Packet(t, build.IPv6{Src: from, Dst: gateways[1], HopLimit: 255},
		build.ICMPv6{Type: 135}, build.Data(body))
	return append(append(append([]byte{2, 0, 0, 0, 2, 2}, mac[:]...), 0x86, 0xdd), b...)
}

func neighbours(v *cluster) int {
	v.t.Helper()
	out, err := v.host.Command("ip", "neigh", "show").Output()
	v.must(err)
	return strings.Count(string(out), "\n")
}

// TestFloodsHarmNoBystander: whatever a pod throws at the host, the host's table of neighbours does
// not grow, nothing of it reaches another pod, and the others talk on.
func TestFloodsHarmNoBystander(t *testing.T) {
	v := newCluster(t, openRules)
	v.serve(v.outside, 7)
	v.serve(v.b.Node, 7)
	// as for a runtime's own namespaces: it answers there
	v.must(v.host.Netlink().AddAddr(int(v.a.endpoint.Index), netip.PrefixFrom(gateways[1], 128)))
	c, err := dialFrom(v.b.Node, "192.0.2.2:7", testTimeout)
	v.must(err)
	defer c.Close()
	v.must(echoWord(c, "before"))
	before, received := neighbours(v), v.counters(v.b).PacketsIn

	random := rand.New(rand.NewPCG(1, 2))
	mac := v.a.endpoint.MAC
	var frames [][]byte
	for i := range 2000 {
		frames = append(frames, asks(mac,
			netip.AddrFrom4([4]byte{10, 88, byte(1 + i>>8), byte(i)})))
		var a [16]byte
		copy(a[:], []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0})
		binary.BigEndian.PutUint32(a[12:], random.Uint32())
		frames = append(frames, solicits(t, mac, netip.AddrFrom16(a)))
		garbage := make([]byte, 14+random.IntN(200))
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		copy(garbage, v.a.endpoint.HostMAC[:])
		copy(garbage[6:], mac[:])
		binary.BigEndian.PutUint16(garbage[12:],
			[]uint16{0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88cc, 0x1234}[i%7])
		frames = append(frames, garbage)
	}
	done := make(chan error, 1)
	flood := func() { done <- inject(v.a.Node, frames) }
	go flood()
	talks := 0
	for flooding := true; flooding; talks++ {
		select {
		case err := <-done:
			v.must(err)
			// the kernel drops frames that come faster than it takes them
			if flooding = v.drops(firewall.ReasonSpoof) < 2000; flooding {
				go flood()
			}
		default:
		}
		if err := echoWord(c, fmt.Sprint("during ", talks)); err != nil {
			t.Fatalf("b talks to the outside while a floods: %v", err)
		}
	}
	if after := neighbours(v); after > before+2 {
		t.Errorf("the host had %d neighbours and has %d", before, after)
	}
	if n := v.counters(v.b).PacketsIn - received; n > uint64(4*talks+10) {
		t.Errorf("b received %d packets for %d talks", n, talks)
	}
	// a itself may continue, from its own address.
	if err := inject(v.a.Node, [][]byte{asks(mac, v.a.endpoint.Addrs[0])}); err != nil {
		t.Fatal(err)
	}
	if err := reach(v.a.Node, "10.88.0.3:7"); err != nil {
		t.Error(err)
	}
}
