package kernel

import (
	"math"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// Offsets of what BenchmarkNewFlows changes in a frame, and the numbers of its flows: 8192 from
// each source, fewer than a source may have half-open.
const (
	frameSource, frameSourcePort, frameRead = 14 + 12, 14 + 20, 14 + 20 + 8
	flowBits                                = 13
)

// withNewSource returns a program that gives each run of target the source of another flow. With
// random the address of each flow is another one.
func withNewSource(b *testing.B, target *ebpf.Program, random bool) *ebpf.Program {
	b.Helper()
	newMap := func(kind ebpf.MapType) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { m.Close() })
		return m
	}
	targets, count := newMap(ebpf.ProgramArray), newMap(ebpf.Array)
	if err := targets.Put(uint32(0), target); err != nil {
		b.Fatal(err)
	}
	address := asm.Instructions{asm.RSh.Imm(asm.R5, flowBits)}
	if random {
		address = asm.Instructions{asm.LoadImm(asm.R3, 2654435761, asm.DWord), // Knuth
			asm.Mul.Reg32(asm.R5, asm.R3), asm.RSh.Imm32(asm.R5, 8)}
	}
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.Word),
		asm.Add.Imm(asm.R7, 1),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.Word),
		// data and data_end of struct __sk_buff
		asm.LoadMem(asm.R2, asm.R6, 76, asm.Word), asm.LoadMem(asm.R3, asm.R6, 80, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, frameRead),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.Mov.Reg(asm.R5, asm.R7),
	}
	code = append(append(code, address...),
		asm.Or.Imm32(asm.R5, 10<<24),
		asm.HostTo(asm.BE, asm.R5, asm.Word),
		asm.StoreMem(asm.R2, frameSource, asm.R5, asm.Word),
		asm.Mov.Reg(asm.R5, asm.R7), asm.And.Imm(asm.R5, 1<<flowBits-1),
		asm.Add.Imm(asm.R5, 1024),
		asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.StoreMem(asm.R2, frameSourcePort, asm.R5, asm.Half),
		asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, targets.FD()),
		asm.Mov.Imm(asm.R3, 0), asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: code})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

// engineOfNewFlows returns an engine that lets flows to port 9 in, and as many half-open ones as of
// others.
func engineOfNewFlows(b *testing.B) *Engine {
	b.Helper()
	o := firewall.DefaultOptions()
	o.MaxHalfOpen = o.MaxStates
	return benchEngine(b, o, "10.99.255.1/16", "add check-state\n"+
		"add allow udp from any to me 9 keep-state\n"+
		"add allow tcp from any to me 9 setup keep-state\n")
}

// BenchmarkNewFlows measures the first packet of a flow, in runs of such packets, over an empty
// program: the median of many rounds. The states fill the table meanwhile. How long memory takes
// depends on the pages that an engine gets: run it several times, with -cpu 1 -benchtime 1x.
func BenchmarkNewFlows(b *testing.B) {
	nstest.RequireRoot(b)
	runtime.LockOSThread()
	empty := benchNothing(b)
	udp := build.UDP{SrcPort: 1024, DstPort: 9}
	syn := build.TCP{SrcPort: 1024, DstPort: 9, Flags: packet.FlagSYN, Window: 60000,
		Options: benchSegments()[0].options}
	const round, rounds = 250, 150
	for _, c := range []struct {
		name   string
		l4     build.Layer
		random bool
		before int // states in the table
	}{
		{"udp", udp, false, 0},
		{"udp, half full", udp, false, 150_000},
		{"udp, full", udp, false, math.MaxInt},
		{"syn", syn, false, 0},
		{"syn of random sources", syn, true, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := enginetest.Packet(b, build.IPv4{Src: netip.MustParseAddr("10.0.0.1"),
				Dst: netip.MustParseAddr("10.99.255.1")}, c.l4, build.Data(make([]byte, 18)))
			frame := append(frameFor(p), p...)
			e := engineOfNewFlows(b)
			nothing := withNewSource(b, empty, c.random)
			hook := withNewSource(b, e.objects.WeirIn, c.random)
			run := func(p *ebpf.Program, n int) float64 {
				ret, took, err := p.Benchmark(frame, n, nil)
				if err != nil || int32(ret) != -1 {
					b.Fatal(int32(ret), err)
				}
				return float64(took.Nanoseconds())
			}
			if n := min(c.before, firewall.DefaultOptions().MaxStates); n > 0 {
				run(hook, n)
			}
			var took []float64
			for range rounds {
				least := run(nothing, round)
				took = append(took, run(hook, round)-least)
			}
			slices.Sort(took)
			b.ReportMetric(took[rounds/2], "ns/packet")
		})
	}
}
