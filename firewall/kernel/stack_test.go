package kernel

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The verifier's limit for the stacks of a chain of calls, and the steps in which each of them
// counted before Linux 6.9 (since then those of 16).
const (
	maxStack  = 512
	stackStep = 32
)

// TestStacks adds up the stacks of every chain of calls as Linux 6.1 does, for a machine that runs
// a newer one.
func TestStacks(t *testing.T) { checkStacks(t, committed(t)) }

// TestLongStacksOfClang19 does so for what clang 19 makes of the same C.
func TestLongStacksOfClang19(t *testing.T) { checkStacks(t, byClang19(t)) }

func checkStacks(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	for name, p := range spec.Programs {
		s := stacksOf(p)
		deepest, chain := s.deepest(name)
		t.Logf("%s: %d bytes: %v", name, deepest, chain)
		if deepest > maxStack {
			t.Errorf("%s: %d bytes, at most %d", name, deepest, maxStack)
		}
		long := 3
		if _, first := slowPaths[name]; first { // established flows need no calls
			long = 2
		}
		if name != "weir_release" && (deepest < 2*stackStep || len(chain) < long) {
			t.Errorf("%s: no chain of calls was found", name)
		}
	}
}

// stacks knows the functions of a program by name: how deep each reaches, whom it calls.
type stacks struct {
	depth map[string]int
	calls map[string][]string
}

// stacksOf reads the depths from the offsets at which the frame pointer, or a copy of it, is used.
func stacksOf(p *ebpf.ProgramSpec) stacks {
	s := stacks{depth: map[string]int{}, calls: map[string][]string{}}
	var name string
	var copies map[asm.Register]bool // hold the frame pointer
	deepen := func(offset int) { s.depth[name] = max(s.depth[name], -offset) }
	for i := range p.Instructions {
		in := &p.Instructions[i]
		if f := btf.FuncMetadata(in); f != nil {
			name, copies = f.Name, map[asm.Register]bool{}
		}
		class := in.OpCode.Class()
		switch {
		case in.IsFunctionCall() || in.IsFunctionReference() || in.IsLoadOfFunctionPointer():
			s.calls[name] = append(s.calls[name], in.Reference())
		case class.IsLoad() && in.Src == asm.RFP, class.IsStore() && in.Dst == asm.RFP:
			deepen(int(in.Offset))
		case class == asm.ALU64Class && in.OpCode.ALUOp() == asm.Mov && in.Src == asm.RFP &&
			in.OpCode.Source() == asm.RegSource:
			copies[in.Dst] = true
			continue
		case class == asm.ALU64Class && in.OpCode.ALUOp() == asm.Add && copies[in.Dst] &&
			in.OpCode.Source() == asm.ImmSource:
			deepen(int(in.Constant))
		}
		delete(copies, in.Dst)
	}
	return s
}

// deepest returns the most that a chain of calls from a function takes, and the chain.
func (s stacks) deepest(name string) (bytes int, chain []string) {
	for _, c := range s.calls[name] {
		if b, rest := s.deepest(c); b > bytes {
			bytes, chain = b, rest
		}
	}
	own := max(1, (s.depth[name]+stackStep-1)/stackStep) * stackStep
	return bytes + own, append([]string{name}, chain...)
}
