package kernel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// benchSegment is one packet of the connection that BenchmarkConnection measures.
type benchSegment struct {
	name     string
	out      bool // from the server
	flags    uint8
	seq, ack uint32
	data     int
	options  []byte
}

// benchSegments are what Linux and nginx send for one request without keep-alive.
func benchSegments() []benchSegment {
	const syn, ack, fin, psh, rst = packet.FlagSYN, packet.FlagACK, packet.FlagFIN,
		packet.FlagPSH, packet.FlagRST
	stamps := []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1}
	offer := append([]byte{2, 4, 5, 180, 4, 2}, append(slices.Clone(stamps[2:]), 1, 3, 3, 7)...)
	return []benchSegment{
		{"1 syn", false, syn, 1000, 0, 0, offer},
		{"2 syn-ack", true, syn | ack, 5000, 1001, 0, offer},
		{"3 ack", false, ack, 1001, 5001, 0, stamps},
		{"4 request", false, ack | psh, 1001, 5001, 100, stamps},
		{"5 ack", true, ack, 5001, 1101, 0, stamps},
		{"6 answer", true, ack | psh, 5001, 1101, 1200, stamps},
		{"7 fin", true, ack | fin, 6201, 1101, 0, stamps},
		{"8 fin", false, ack | fin, 1101, 6202, 0, stamps},
		{"9 last ack", true, ack, 6202, 1102, 0, stamps},
		{"10 rst", false, rst, 1102, 0, 0, nil},
	}
}

// BenchmarkConnection measures each packet of a short TCP connection by BPF_PROG_TEST_RUN, one run
// for each of many connections: the median. "nothing" is an empty program. Run with -cpu 1
// -benchtime 1x.
func BenchmarkConnection(b *testing.B) {
	nstest.RequireRoot(b)
	e := benchEngine(b, firewall.DefaultOptions(), "10.99.255.1/16",
		"add check-state\nadd allow tcp from any to me 80 setup keep-state\n")
	empty := benchNothing(b)
	segments := benchSegments()
	var frames [][]byte
	ends := [2]netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("10.99.255.1")}
	for _, s := range segments {
		from, ports := 0, [2]uint16{1024, 80}
		if s.out {
			from = 1
		}
		p := enginetest.Packet(b, build.IPv4{Src: ends[from], Dst: ends[1-from]},
			build.TCP{SrcPort: ports[from], DstPort: ports[1-from], Seq: s.seq, Ack: s.ack,
				Flags: s.flags, Window: 60000, Options: s.options},
			build.Data(make([]byte, s.data)))
		frames = append(frames, append(frameFor(p), p...))
	}
	const connections = 10_000
	took := make([][]float64, len(segments)+1)
	run := func(i int, p *ebpf.Program, frame []byte) {
		ret, d, err := p.Benchmark(frame, 1, nil)
		if err != nil || int32(ret) != -1 {
			b.Fatalf("packet %d: %d %v", i, int32(ret), err)
		}
		took[i] = append(took[i], float64(d.Nanoseconds()))
	}
	for n := range connections {
		for i, s := range segments {
			p, at := e.objects.WeirIn, 14+20
			if s.out {
				p, at = e.objects.WeirOut, 14+20+2
			}
			binary.BigEndian.PutUint16(frames[i][at:], uint16(1024+n))
			run(i, p, frames[i])
		}
		run(len(segments), empty, frames[0])
	}
	sum := 0.0
	for i, d := range took {
		slices.Sort(d)
		name := "nothing"
		if i < len(segments) {
			name = segments[i].name
			sum += d[len(d)/2]
		}
		b.Run(name, func(b *testing.B) { b.ReportMetric(d[len(d)/2], "ns/packet") })
	}
	b.Run("all", func(b *testing.B) { b.ReportMetric(sum, "ns/packet") })
}
