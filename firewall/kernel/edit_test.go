package kernel

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
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
