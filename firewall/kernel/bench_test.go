package kernel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// evaluation is what BenchmarkEvaluate measures: a packet under rules, after others.
type evaluation struct {
	name, rules string
	prime       [][]byte
	packet      []byte
}

// evaluations of stateless and stateful rules, few and many.
func evaluations(b *testing.B) []evaluation {
	from, to := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")
	from6, to6 := netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1")
	mustBuild := func(layers ...build.Layer) []byte {
		return enginetest.Packet(b, layers...)
	}
	there, back := build.IPv4{Src: from, Dst: to}, build.IPv4{Src: to, Dst: from}
	syn := mustBuild(there, build.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.FlagSYN,
		Window: 1000})
	synack := mustBuild(back, build.TCP{SrcPort: 80, DstPort: 4000, Seq: 9, Ack: 1,
		Flags: packet.FlagSYN | packet.FlagACK, Window: 1000})
	ack := mustBuild(there, build.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, Ack: 10,
		Flags: packet.FlagACK, Window: 1000})
	bytes := build.Data(make([]byte, 18))
	data := mustBuild(there, build.UDP{SrcPort: 4000, DstPort: 53}, bytes)
	data6 := mustBuild(build.IPv6{Src: from6, Dst: to6}, build.UDP{SrcPort: 4000, DstPort: 53},
		bytes)
	other := mustBuild(there, build.UDP{SrcPort: 4000, DstPort: 9}, bytes)
	denied := func(n int) string {
		var rules strings.Builder
		for i := range n {
			fmt.Fprintf(&rules, "add %d deny udp from 10.%d.%d.0/24 to any %d\n", i+1, 1+i/250,
				i%250, 1000+i)
		}
		return rules.String()
	}
	many, most := denied(1000), denied(10000)
	return []evaluation{
		{"stateless", "add allow udp from any to any 53\n", nil, data},
		{"stateless deny", "add allow udp from any to any 53\n", nil, other},
		{"rate of all", "add allow udp from any to any 53 limit-rate 1000000/s\n", nil, data},
		{"rate of a source", "add allow udp from any to any 53 limit-rate 1000000/s src-addr\n",
			nil, data},
		{"udp", "add check-state\nadd allow udp from any to any 53 keep-state\n", nil, data},
		{"udp6", "add check-state\nadd allow udp from any to any 53 keep-state\n", nil, data6},
		{"udp without keep-state", "add check-state\nadd allow udp from any to any 53\n" +
			"add allow tcp from any to any keep-state\n", nil, data},
		{"udp deny", "add check-state\nadd allow udp from any to any 53 keep-state\n", nil, other},
		{"tcp deny", webRules, nil, ack},
		{"tcp", webRules, [][]byte{syn, synack, ack}, ack},
		{"stateless 1000", many + "add allow udp from any to any 53\n", nil, data},
		{"stateless 10000", most + "add 60000 allow udp from any to any 53\n", nil, data},
		{"udp 10000", "add 1 check-state\n" + most +
			"add 60000 allow udp from any to any 53 keep-state\n", nil, data},
		// The walk has to classify the packet before it looks the state up: the slow path.
		{"rules before check-state", most + "add 50000 check-state\n" +
			"add 60000 allow udp from any to any 53 keep-state\n", nil, data},
	}
}

// BenchmarkEvaluate measures the whole evaluation of one packet by BPF_PROG_TEST_RUN, everything in
// cache: run with -cpu 1 -benchtime 1x.
func BenchmarkEvaluate(b *testing.B) {
	nstest.RequireRoot(b)
	b.Run("nothing", func(b *testing.B) { // what the test itself takes
		b.ReportMetric(leastOf(b, benchNothing(b), make([]byte, 64)), "ns/packet")
	})
	for _, c := range evaluations(b) {
		b.Run(c.name, func(b *testing.B) {
			e := benchEngine(b, firewall.DefaultOptions(), "10.0.0.1/24", c.rules)
			for _, p := range c.prime {
				in := &firewall.Input{Now: time.Duration(monotonic()), Hook: firewall.Hook{Recv: 1}}
				if v, err := e.Evaluate(in, p); err != nil || !v.Pass {
					b.Fatalf("%+v %v", v, err)
				}
			}
			frame := append(frameFor(c.packet), c.packet...)
			b.ReportMetric(leastOf(b, e.objects.WeirIn, frame), "ns/packet")
		})
	}
}

// benchEngine returns an engine with these rules and one interface, which has this address.
func benchEngine(b *testing.B, o firewall.Options, address, rules string) *Engine {
	b.Helper()
	e, err := Open(Config{Options: o})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(func() { e.Close() })
	if err := e.SetInterfaces([]firewall.Interface{{Index: 1, Name: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix(address)}}}); err != nil {
		b.Fatal(err)
	}
	if err := e.Load(compile(b, rules)); err != nil {
		b.Fatal(err)
	}
	return e
}

// benchNothing returns a program that only passes, as the hooks do.
func benchNothing(b *testing.B) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

// leastOf returns what one run of a program takes, ns: the least of many short rounds, of which
// some are undisturbed.
func leastOf(b *testing.B, p *ebpf.Program, frame []byte) float64 {
	b.Helper()
	least := 1e9
	for range 300 {
		_, took, err := p.Benchmark(frame, 2000, nil)
		if err != nil {
			b.Fatal(err)
		}
		least = min(least, float64(took.Nanoseconds()))
	}
	return least
}
