package kernel

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// sizeArgument is the register of the size that helpers read from or write to memory.
var sizeArgument = map[asm.BuiltinFunc]asm.Register{
	asm.FnSkbLoadBytes: asm.R4, asm.FnSkbStoreBytes: asm.R4, asm.FnRingbufOutput: asm.R3,
}

// TestHelperSizes: a size for a helper is a constant, or a masked number: sized, bpf/lib/kernel.h.
// Linux 7.3 remembers one bound of a difference that two tests bound, and refuses it as a size.
func TestHelperSizes(t *testing.T) { checkHelperSizes(t, committed(t)) }

// TestLongHelperSizesOfClang19 does so for what clang 19 makes of the same C.
func TestLongHelperSizesOfClang19(t *testing.T) { checkHelperSizes(t, byClang19(t)) }

func checkHelperSizes(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	constant, masked := 0, 0
	for name, p := range spec.Programs {
		for i, in := range p.Instructions {
			r, has := sizeArgument[asm.BuiltinFunc(in.Constant)]
			if !in.IsBuiltinCall() || !has {
				continue
			}
			switch sizeOf(p.Instructions[:i], r) {
			case asm.Mov:
				constant++
			case asm.And:
				masked++
			default:
				t.Errorf("%s: the size of the call of %v at %d is neither a constant nor masked",
					name, asm.BuiltinFunc(in.Constant), i)
			}
		}
	}
	if constant == 0 || masked == 0 {
		t.Errorf("%d constant sizes, %d masked ones: too few", constant, masked)
	}
}

// sizeOf follows a register back to what made its value: Mov of a constant, or And with one, to
// which a constant was added or not.
func sizeOf(before asm.Instructions, r asm.Register) asm.ALUOp {
	for i := len(before) - 1; i >= 0; i-- {
		in := before[i]
		class := in.OpCode.Class()
		if in.Dst != r || !class.IsALU() && !class.IsLoad() {
			continue
		}
		constant := class.IsALU() && in.OpCode.Source() == asm.ImmSource
		switch op := in.OpCode.ALUOp(); {
		case constant && (op == asm.Mov || op == asm.And):
			return op
		case constant && op == asm.Add:
		case class.IsALU() && op == asm.Mov: // of another register
			r = in.Src
		default:
			return asm.InvalidALUOp
		}
	}
	return asm.InvalidALUOp
}
