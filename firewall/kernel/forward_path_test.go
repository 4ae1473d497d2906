package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// BenchmarkPassage measures what the programs take for one packet of an established TCP connection
// on its way to or from a pod, by BPF_PROG_TEST_RUN, everything in cache. What the kernel does with
// the packet afterwards is not in it. (A packet to a NIC cannot be sent twice here: it is marked.)
func BenchmarkPassage(b *testing.B) {
	nstest.RequireRoot(b)
	v := newCluster(b, hundredRules())
	v.must(ping(v.a.Node, "192.0.2.2")) // now the host knows its neighbour
	v.must(ping(v.a.Node, "2001:db8::2"))
	nic := v.host.Link("eth0")
	a, other, outside := v.a.endpoint, v.b.endpoint, netip.MustParseAddr("192.0.2.2")
	atNIC := crossing{index: uint32(nic.Index), mac: [6]byte(nic.HardwareAddr)}
	atA := crossing{index: a.Index, mac: a.HostMAC}
	atB := crossing{index: other.Index, mac: other.HostMAC}
	for i, c := range []struct {
		name        string
		there, back crossing
		from, to    netip.Addr
	}{
		{"NIC to pod", atNIC, atA, outside, a.Addrs[0]},
		{"NIC to pod, IPv6", atNIC, atA, netip.MustParseAddr("2001:db8::2"), a.Addrs[1]},
		{"pod to pod", atA, atB, a.Addrs[0], other.Addrs[0]},
		{"pod to pod, IPv6", atA, atB, a.Addrs[1], other.Addrs[1]},
	} {
		b.Run(c.name, func(b *testing.B) {
			v.t = b
			port := uint16(5000 + i)
			syn := build.TCP{SrcPort: port, DstPort: 7, Flags: packet.FlagSYN, Window: 1000}
			synAck := build.TCP{SrcPort: 7, DstPort: port, Seq: 9, Ack: 1,
				Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}
			ack := build.TCP{SrcPort: port, DstPort: 7, Seq: 1, Ack: 10, Flags: packet.FlagACK,
				Window: 1000}
			v.pass(c.there, c.from, c.to, syn, 1)
			v.pass(c.back, c.to, c.from, synAck, 1)
			few, many := time.Hour, time.Hour
			for range max(1000, b.N/200) {
				few = min(few, v.pass(c.there, c.from, c.to, ack, 1))
				many = min(many, v.pass(c.there, c.from, c.to, ack, 201))
			}
			b.ReportMetric(float64((many-few).Nanoseconds())/200, "ns/packet")
		})
	}
}

// hundredRules are a hundred that do not match, behind check-state and before one that lets
// everything pass.
func hundredRules() string {
	text := "add 1 check-state\n"
	for i := range 100 {
		text += fmt.Sprintf("add deny tcp from 172.16.%d.0/24 to any %d\n", i, 1000+i)
	}
	return text + "add allow ip from any to any keep-state\n"
}

// crossing is an interface where packets come in.
type crossing struct {
	index uint32
	mac   [6]byte // the one they are sent to
}

// arrival returns the frame of a segment that comes in, and the struct __sk_buff beside it.
func (v *cluster) arrival(at crossing, from, to netip.Addr, segment build.TCP,
	hops uint8) (frame, context []byte) {
	v.t.Helper()
	var header build.Layer = build.IPv4{Src: from, Dst: to, TTL: hops}
	etherType := uint16(0x0800)
	if from.Is6() {
		header, etherType = build.IPv6{Src: from, Dst: to, HopLimit: hops}, 0x86dd
	}
	ip := enginetest.Packet(v.t, header, segment)
	frame = append(append([]byte(nil), at.mac[:]...), 2, 0, 0, 0, 0, 9)
	frame = append(binary.BigEndian.AppendUint16(frame, etherType), ip...)
	context = make([]byte, skbSize)
	binary.NativeEndian.PutUint32(context[40:], at.index)
	return frame, context
}

// pass has a segment come in a number of times and returns how long that took. Its hop limit, which
// goes down every time, is 255 at first.
func (v *cluster) pass(at crossing, from, to netip.Addr, segment build.TCP,
	times uint32) (took time.Duration) {
	v.t.Helper()
	frame, context := v.arrival(at, from, to, segment, 255)
	v.must(v.host.Do(func() error {
		begin := time.Now()
		code, err := v.engine.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame, Context: context,
			Repeat: times})
		took = time.Since(begin)
		if err == nil && code != 7 { // TC_ACT_REDIRECT
			err = fmt.Errorf("the program returned %d", int32(code))
		}
		return err
	}))
	return took
}
