package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestHopLimitOnTheFastPath: each datagram of a flow between pods has lost one hop and is whole,
// over both families. The first takes the slow path and the others the fast path.
func TestHopLimitOnTheFastPath(t *testing.T) {
	v := newCluster(t, "add 1 check-state\nadd allow ip from any to any keep-state\n")
	for _, to := range []string{"10.88.0.3:9", "[fd00:88::3]:9"} {
		var server net.PacketConn
		v.must(v.b.Do(func() (err error) {
			server, err = net.ListenPacket("udp", to)
			return err
		}))
		defer server.Close()
		server.SetReadDeadline(time.Now().Add(testTimeout))
		client, err := v.a.DialContext(context.Background(), "udp", to)
		v.must(err)
		defer client.Close()
		// The hop limit that a pod's kernel gives is 64.
		read := func() (n, hops int) {
			b := make([]byte, 2000)
			if to[0] != '[' {
				p := ipv4.NewPacketConn(server)
				v.must(p.SetControlMessage(ipv4.FlagTTL, true))
				n, cm, from, err := p.ReadFrom(b)
				v.must(err)
				_, err = server.WriteTo(b[:n], from)
				v.must(err)
				return n, cm.TTL
			}
			p := ipv6.NewPacketConn(server)
			v.must(p.SetControlMessage(ipv6.FlagHopLimit, true))
			n, cm, from, err := p.ReadFrom(b)
			v.must(err)
			_, err = server.WriteTo(b[:n], from)
			v.must(err)
			return n, cm.HopLimit
		}
		if to[0] != '[' {
			v.must(ipv4.NewPacketConn(server).SetControlMessage(ipv4.FlagTTL, true))
		} else {
			v.must(ipv6.NewPacketConn(server).SetControlMessage(ipv6.FlagHopLimit, true))
		}
		client.SetReadDeadline(time.Now().Add(testTimeout))
		for i := range 20 {
			_, err := client.Write(make([]byte, 10+i))
			v.must(err)
			if n, hops := read(); n != 10+i || hops != 63 {
				t.Fatalf("%s: datagram %d came with %d bytes and %d hops left", to, i, n, hops)
			}
			if n, err := client.Read(make([]byte, 2000)); n != 10+i || err != nil {
				t.Fatalf("%s: answer %d came with %d bytes: %v", to, i, n, err)
			}
		}
	}
}

// TestSumOfAllOnTheFastPath: a packet for which a NIC has added up all behind its Ethernet header
// (CHECKSUM_COMPLETE) has the right sum after it has lost a hop. The kernel adds up again what the
// program leaves, and compares. Older kernels cannot.
func TestSumOfAllOnTheFastPath(t *testing.T) {
	const complete = 1 << 2 // BPF_F_TEST_SKB_CHECKSUM_COMPLETE
	v := newCluster(t, "add 1 check-state\nadd allow ip from any to any keep-state\n")
	at := crossing{index: v.a.endpoint.Index, mac: v.a.endpoint.HostMAC}
	back := crossing{index: v.b.endpoint.Index, mac: v.b.endpoint.HostMAC}
	ack := build.TCP{SrcPort: 5, DstPort: 7, Seq: 1, Ack: 10, Flags: packet.FlagACK, Window: 1000}
	run := func(i int, hops uint8, flags uint32) (left uint8) {
		t.Helper()
		frame, context := v.arrival(at, v.a.endpoint.Addrs[i], v.b.endpoint.Addrs[i], ack, hops)
		out := make([]byte, len(frame))
		once := func() error {
			code, err := v.engine.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame,
				Context: context, DataOut: out, Flags: flags})
			if err == nil && int32(code) != redirected {
				err = fmt.Errorf("the program returned %d", int32(code))
			}
			return err
		}
		err := v.host.Do(func() error { return onFirstCPU(once) })
		if errors.Is(err, unix.EINVAL) && flags != 0 {
			t.Skip("this kernel does not add up what a program leaves")
		}
		if err != nil {
			t.Errorf("%s, %d hops: %v", v.b.endpoint.Addrs[i], hops, err)
		}
		return out[14+8-i] // of IPv4, of IPv6
	}
	for i, from := range v.a.endpoint.Addrs {
		to := v.b.endpoint.Addrs[i]
		v.pass(at, from, to, build.TCP{SrcPort: 5, DstPort: 7, Flags: packet.FlagSYN,
			Window: 1000}, 1)
		v.pass(back, to, from, build.TCP{SrcPort: 7, DstPort: 5, Seq: 9, Ack: 1,
			Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}, 1)
		run(i, 64, 0) // now this CPU knows the flow
	}
	v.must(v.engine.objects.SlowPaths.Delete(uint32(slowIn)))
	for i := range v.a.endpoint.Addrs {
		for _, hops := range []uint8{2, 3, 64, 128, 255} {
			if left := run(i, hops, complete); left != hops-1 {
				t.Errorf("%s: %d hops are left of %d", v.b.endpoint.Addrs[i], left, hops)
			}
		}
	}
}
