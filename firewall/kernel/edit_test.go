package kernel

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// TestSettingsNeedNoLookUp: programs know the address of the settings, which lie in the map that
// engines pin.
func TestSettingsNeedNoLookUp(t *testing.T) {
	spec := committed(t)
	if err := edit(spec); err != nil {
		t.Fatal(err)
	}
	if spec.Maps[configValue] != nil {
		t.Error("the settings lie in a map of their own")
	}
	for name, p := range spec.Programs {
		uses := 0
		for _, ins := range p.Instructions {
			if !ins.IsLoadFromMap() {
				continue
			}
			switch ins.Reference() {
			case configValue:
				t.Errorf("%s reads %s", name, configValue)
			case "config":
				uses++
				if ins.Src != asm.PseudoMapValue || ins.Constant != 0 {
					t.Errorf("%s looks the settings up: %v", name, ins)
				}
			}
		}
		if uses == 0 {
			t.Errorf("%s reads no settings", name)
		}
	}
}
