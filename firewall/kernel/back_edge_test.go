package kernel

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestBackEdges: Linux 6.1 lets a loop end in a jump alone. Where the last instruction of a loop
// falls through to the first one, it refuses the program.
func TestBackEdges(t *testing.T) { checkBackEdges(t, committed(t)) }

// TestLongBackEdgesOfClang19 does so for what clang 19 makes of the same C.
func TestLongBackEdgesOfClang19(t *testing.T) { checkBackEdges(t, byClang19(t)) }

func checkBackEdges(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	loops := 0
	for name, p := range spec.Programs {
		g, err := graphOf(p.Instructions)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		at, n := g.explore()
		loops += n
		if at >= 0 {
			t.Errorf("%s: instruction %d falls through to the begin of its loop: %v %v", name, at,
				p.Instructions[at], p.Instructions[at].Source())
		}
	}
	if loops == 0 {
		t.Error("no loops were found")
	}
}

// TestBackEdgesAreFound: a loop that ends in a jump, and one that does not.
func TestBackEdgesAreFound(t *testing.T) {
	jumps := asm.Instructions{asm.Mov.Imm(asm.R0, 8), asm.Add.Imm(asm.R0, -1),
		asm.JNE.Imm(asm.R0, 0, "loop"), asm.Return()}
	jumps[1] = jumps[1].WithSymbol("loop")
	falls := asm.Instructions{asm.Mov.Imm(asm.R0, 8), asm.Ja.Label("head"),
		asm.Add.Imm(asm.R0, -1), asm.Mov.Reg(asm.R1, asm.R0),
		asm.JNE.Imm(asm.R0, 0, "latch"), asm.Return()}
	falls[2] = falls[2].WithSymbol("latch")
	falls[4] = falls[4].WithSymbol("head")
	for want, code := range map[int]asm.Instructions{-1: jumps, 3: falls} {
		g, err := graphOf(code)
		if err != nil {
			t.Fatal(err)
		}
		if at, _ := g.explore(); at != want {
			t.Errorf("instruction %d, want %d", at, want)
		}
	}
}

// graph is the control flow of a program as check_cfg of kernel/bpf/verifier.c sees it: from each
// instruction at most two edges.
type graph [][]edge

type edge struct {
	to   int
	loop bool // it may close a loop
}

func graphOf(code asm.Instructions) (graph, error) {
	symbols, slots := map[string]int{}, map[int]int{}
	at := code.Iterate()
	for at.Next() {
		slots[int(at.Offset)] = at.Index
		if s := at.Ins.Symbol(); s != "" {
			symbols[s] = at.Index
		}
	}
	g := make(graph, len(code))
	target := func(in *asm.Instruction, offset int) (int, error) {
		to, there := slots[offset+1+int(in.Offset)]
		if name := in.Reference(); name != "" {
			to, there = symbols[name]
		}
		if !there {
			return 0, fmt.Errorf("%v leads nowhere", in)
		}
		return to, nil
	}
	at = code.Iterate()
	for at.Next() {
		in, next := at.Ins, at.Index+1
		class, op := in.OpCode.Class(), in.OpCode.JumpOp()
		switch {
		case in.IsFunctionCall() || in.IsLoadOfFunctionPointer():
			to, there := symbols[in.Reference()]
			if !there {
				return nil, fmt.Errorf("%v leads nowhere", in)
			}
			g[at.Index] = []edge{{to: next}, {to, in.IsLoadOfFunctionPointer()}}
		case !class.IsJump() || op == asm.Call:
			g[at.Index] = []edge{{to: next}}
		case op == asm.Exit:
		default:
			to, err := target(in, int(at.Offset))
			if err != nil {
				return nil, err
			}
			if g[at.Index] = []edge{{to, true}}; op != asm.Ja {
				g[at.Index] = []edge{{next, true}, {to, true}}
			}
		}
	}
	return g, nil
}

// explore goes through all instructions, depth first. It returns the first one with an edge back
// that may not close a loop, -1 if there is none, and how many loops there are.
func (g graph) explore() (at, loops int) {
	const ahead, onStack, done = 0, 1, 2
	state, taken := make([]uint8, len(g)), make([]int, len(g))
	stack := []int{0}
	state[0] = onStack
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		if taken[t] == len(g[t]) {
			state[t] = done
			stack = stack[:len(stack)-1]
			continue
		}
		e := g[t][taken[t]]
		taken[t]++
		switch state[e.to] {
		case ahead:
			state[e.to] = onStack
			stack = append(stack, e.to)
		case onStack:
			if !e.loop {
				return t, loops
			}
			loops++
		}
	}
	return -1, loops
}
