package kernel

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// TestValuesNeedNoLookUp: programs know the addresses of the settings and of what else has one
// value, which lie in the maps that engines pin.
func TestValuesNeedNoLookUp(t *testing.T) {
	spec := committed(t)
	for name := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s is a map of its own", name)
		}
	}
	for name, p := range spec.Programs {
		uses := 0
		for _, ins := range p.Instructions {
			if !ins.IsLoadFromMap() || !slices.Contains(valuesOf, ins.Reference()) {
				continue
			}
			uses++
			if ins.Src != asm.PseudoMapValue || ins.Constant != 0 {
				t.Errorf("%s looks something up: %v", name, ins)
			}
		}
		if uses == 0 {
			t.Errorf("%s uses no value of a map", name)
		}
	}
}

// TestScratchIsHandedOn: functions get the scratch of their CPU from their caller. Only these look
// it up: programs, callbacks, and what bpf/README.md names.
func TestScratchIsHandedOn(t *testing.T) {
	allowed := []string{"one_step", "tick", "sweep_one", "adopt_one", "try_limit",
		"find_own", "find_first", "take_bucket", "ask_policy"}
	for name, p := range committed(t).Programs {
		function, uses := "", 0
		for _, ins := range p.Instructions {
			if f := btf.FuncMetadata(&ins); f != nil {
				function = f.Name
			}
			if at := ins.Reference(); !ins.IsLoadFromMap() || at != "cpus" && at != "call_cpus" {
				continue
			}
			uses++
			if function != name && !slices.Contains(allowed, function) {
				t.Errorf("%s: %s looks up the scratch", name, function)
			}
		}
		if (uses == 0) != (name == "weir_release") {
			t.Errorf("%s looks up the scratch %d times", name, uses)
		}
	}
}
