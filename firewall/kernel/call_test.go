package kernel

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// TestCallsUseTheirOwnScratch: what the agent asks for and what packets do share no scratch. The
// callback of the timer, which comes between packets, is packets'. weir_release needs none.
func TestCallsUseTheirOwnScratch(t *testing.T) {
	spec := committed(t)
	for name, p := range spec.Programs {
		uses := scratchOf(p)
		other, own := "call_cpus", "cpus"
		if slices.Contains(byCall, name) {
			other, own = own, other
		}
		if (uses[own] == 0) != (name == "weir_release") || uses[other] != 0 {
			t.Errorf("%s refers to %v", name, uses)
		}
	}
	if spec.Maps["cpus"].ValueSize != spec.Maps["call_cpus"].ValueSize {
		t.Error("the two differ in size")
	}
}

// TestLoadedCallsUseTheirOwnScratch: so do the programs that an engine has loaded.
func TestLoadedCallsUseTheirOwnScratch(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	if err := e.needLocked("weir_in_l3", "weir_out_l3", "weir_local"); err != nil {
		t.Fatal(err)
	}
	id := func(m *ebpf.Map) ebpf.MapID {
		t.Helper()
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, ok := info.ID()
		if !ok {
			t.Skip("this kernel does not report the ids of maps")
		}
		return id
	}
	packets, calls := id(e.objects.Cpus), id(e.objects.CallCpus)
	for _, p := range []*ebpf.Program{e.objects.WeirIn, e.objects.WeirOut, e.objects.WeirInL3,
		e.objects.WeirOutL3, e.objects.WeirLocal, e.objects.WeirTick, e.objects.WeirCall} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		maps, ok := info.MapIDs()
		if !ok {
			t.Skip("this kernel does not report the maps of programs")
		}
		isCall := p == e.objects.WeirCall
		if slices.Contains(maps, calls) != isCall || slices.Contains(maps, packets) == isCall {
			t.Errorf("%s uses the scratch of calls: %v, that of packets: %v", info.Name,
				slices.Contains(maps, calls), slices.Contains(maps, packets))
		}
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
