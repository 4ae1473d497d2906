package kernel

import (
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// TestMemoryOrder looks at the programs for what orders loads and stores on processors that keep no
// order by themselves. Flags are set by operations that fetch, because others are relaxed there. An
// entry's address depends on the tag by which it was found. What clears a sweep hint is an
// exchange, behind the change that it is about.
func TestMemoryOrder(t *testing.T) {
	const atomic, or, fetch, exchange = 0xc0, 0x40, 0x01, 0xe1
	// of the addresses of entries that were not found by their key, and of partners
	others := map[string]int{"nat_follow": 1, "nat_weigh": 2, "remove_state": 1,
		"remove_duplicate": 1, "reclaimable": 1, "sweep_at": 2}
	met := map[string]bool{}
	for name, p := range committed(t).Programs {
		var function string
		fetched, seen := 0, map[string]bool{}
		depends, exchanged := map[string]int{}, map[string]int{}
		for i := range p.Instructions {
			in := &p.Instructions[i]
			if f := btf.FuncMetadata(in); f != nil {
				function, seen[f.Name] = f.Name, true
			}
			op := in.OpCode
			if op.Class() == asm.StXClass && op.Mode() == asm.Mode(atomic) &&
				in.Constant&^fetch == or {
				if in.Constant&fetch == 0 {
					t.Errorf("%s: %s sets flags without an order", name, function)
				}
				fetched++
			}
			if op.Class() == asm.StXClass && op.Mode() == asm.Mode(atomic) &&
				in.Constant == exchange {
				exchanged[function]++
			}
			if op.Class() == asm.ALU64Class && op.ALUOp() == asm.Xor &&
				op.Source() == asm.RegSource && in.Dst == in.Src {
				depends[function]++
			}
		}
		for f, n := range others {
			if seen[f] && depends[f] < n {
				t.Errorf("%s: %s: %d addresses depend on a tag, not %d", name, f, depends[f], n)
			}
			met[f] = met[f] || seen[f]
		}
		switch name {
		case "weir_local", "weir_tick", "weir_call", "weir_release":
			continue
		}
		if _, first := slowPaths[name]; first { // the fast path is a part of the hook's function
			if depends[name] < 2*ways {
				t.Errorf("%s: %d addresses depend on a tag, not %d", name, depends[name], 2*ways)
			}
			continue
		}
		if fetched == 0 {
			t.Errorf("%s: no flags are set: the test does not see them", name)
		}
		if exchanged["step"] == 0 {
			t.Errorf("%s: step: a sweep hint is cleared without an order", name)
		}
		if depends["look_up"] < 2*ways {
			t.Errorf("%s: look_up: %d addresses depend on a tag, not %d", name, depends["look_up"],
				2*ways)
		}
	}
	for f := range others {
		if !met[f] {
			t.Errorf("no program has a function %s: the test does not see it", f)
		}
	}
}
