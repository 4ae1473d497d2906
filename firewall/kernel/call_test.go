package kernel

import (
	"testing"

	"github.com/cilium/ebpf"
)

// TestCallsUseTheirOwnScratch: what the agent asks for and what packets do share no scratch. The
// callback of the timer, which comes between packets, is packets'.
func TestCallsUseTheirOwnScratch(t *testing.T) {
	spec := committed(t)
	if err := separateCalls(spec); err != nil {
		t.Fatal(err)
	}
	for name, p := range spec.Programs {
		uses := scratchOf(p)
		other, own := "call_cpus", "cpus"
		if name == "weir_call" {
			other, own = own, other
		}
		if uses[own] == 0 || uses[other] != 0 {
			t.Errorf("%s refers to %v", name, uses)
		}
	}
	if spec.Maps["cpus"].ValueSize != spec.Maps["call_cpus"].ValueSize {
		t.Error("the two differ in size")
	}
}

func scratchOf(p *ebpf.ProgramSpec) map[string]int {
	uses := map[string]int{}
	for _, in := range p.Instructions {
		if r := in.Reference(); r == "cpus" || r == "call_cpus" {
			uses[r]++
		}
	}
	return uses
}
