package kernel

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// hostRules let the host have connections, and refuse most of what begins outside.
const hostRules = "add 1 check-state\nadd allow tcp from any to me 22 setup keep-state\n" +
	"add allow udp from any to me 53 keep-state\nadd allow udp from me to any keep-state\n" +
	"add allow icmp from any to any\nadd deny ip from any to any\n"

// BenchmarkHost measures what the programs take for packets of the host itself by
// BPF_PROG_TEST_RUN, everything in cache: without pods, with pods, and with translation for them.
// Run with -cpu 1 -benchtime 1x.
func BenchmarkHost(b *testing.B) {
	f := newFrames(b, hostRules)
	client, host := end(outsideAddr, 4000), end(hostAddr, 22)
	for _, s := range []build.TCP{{Flags: packet.FlagSYN, Window: 1000},
		{Seq: 9, Ack: 1, Flags: packet.FlagSYN | packet.FlagACK, Window: 1000},
		{Seq: 1, Ack: 10, Flags: packet.FlagACK, Window: 1000}} {
		if s.Seq == 9 {
			f.cross(b, f.engine.objects.WeirOut, host, client, s, 1)
		} else {
			f.cross(b, f.engine.objects.WeirIn, client, host, s, 1)
		}
	}
	dns := end(hostAddr, 53)
	packets := []struct {
		name     string
		out      bool
		from, to netip.AddrPort
		l        build.Layer
	}{
		{"TCP in", false, client, host,
			build.TCP{Seq: 1, Ack: 10, Flags: packet.FlagACK, Window: 1000}},
		{"TCP out", true, host, client,
			build.TCP{Seq: 10, Ack: 1, Flags: packet.FlagACK, Window: 1000}},
		{"UDP in", false, client, dns, build.UDP{}},
		{"UDP out", true, dns, client, build.UDP{}},
		{"UDP refused", false, client, end(hostAddr, 9), build.UDP{}},
		{"SYN refused", false, client, end(hostAddr, 9),
			build.TCP{Flags: packet.FlagSYN, Window: 1000}},
		{"own source", false, end(hostAddr, 4000), dns, build.UDP{}},
	}
	run := func(with string) {
		for _, c := range packets {
			b.Run(c.name+", "+with, func(b *testing.B) {
				p := f.engine.objects.WeirIn
				if c.out {
					p = f.engine.objects.WeirOut
				}
				least := time.Hour
				for range 100 {
					least = min(least, f.cross(b, p, c.from, c.to, c.l, 2000))
				}
				b.ReportMetric(float64(least.Nanoseconds())/2000, "ns/packet")
			})
		}
	}
	run("pods")
	f.masquerade(2000, 3000)
	f.publish(8080, 80)
	run("translation")
	f.must(f.engine.SetPublished(nil))
	f.must(f.engine.SetMasquerade(forward.Masquerade{}))
	for _, p := range []*podNode{f.a, f.b} {
		f.must(f.engine.DeleteEndpoint(p.endpoint.Index))
	}
	run("no pods")
}

// cross puts a packet into a program at the NIC a number of times and returns how long that took.
func (f *frames) cross(b *testing.B, p *ebpf.Program, from, to netip.AddrPort, l build.Layer,
	times uint32) (took time.Duration) {
	b.Helper()
	_, frame := f.frame(from, to, l, 18)
	return f.crossFrame(b, p, frame, times)
}

// crossFrame does so with any frame.
func (f *frames) crossFrame(b *testing.B, p *ebpf.Program, frame []byte,
	times uint32) (took time.Duration) {
	b.Helper()
	_, context := f.arrival(f.nic, outsideAddr, hostAddr, build.TCP{}, 64)
	f.must(f.host.Do(func() error {
		begin := time.Now()
		_, err := p.Run(&ebpf.RunOptions{Data: frame, Context: context, Repeat: times})
		took = time.Since(begin)
		return err
	}))
	return took
}

// BenchmarkHopOptions measures what a packet with the most hop-by-hop options takes that are
// decoded: short ones, and such that fill an Ethernet frame.
func BenchmarkHopOptions(b *testing.B) {
	f := newFrames(b, hostRules)
	for name, size := range map[string]int{"short": 2, "long": 90} {
		b.Run(name, func(b *testing.B) {
			var options []byte
			for range 16 {
				options = append(options, 0x1e, byte(size-2))
				options = append(options, make([]byte, size-2)...)
			}
			rest := 7 - (len(options)+1)%8 // the last one ends with the header
			options[len(options)-size+1] += byte(rest)
			options = append(options, make([]byte, rest)...)
			ip := enginetest.Packet(b, build.IPv6{Src: netip.MustParseAddr("2001:db8::2"),
				Dst: netip.MustParseAddr("2001:db8::1"), HopLimit: 64},
				build.HopByHop{Options: options}, build.UDP{SrcPort: 4000, DstPort: 9})
			frame := slices.Concat(f.nic.mac[:], []byte{2, 0, 0, 0, 0, 9, 0x86, 0xdd}, ip)
			least := time.Hour
			for range 100 {
				least = min(least, f.crossFrame(b, f.engine.objects.WeirIn, frame, 2000))
			}
			b.ReportMetric(float64(least.Nanoseconds())/2000, "ns/packet")
		})
	}
}
