package kernel

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// edits stands for what readPrograms changes. It changes when that does.
const edits = "call_cpus values"

// readPrograms reads the object file and changes its programs to what the kernel is to load.
func readPrograms() (*ebpf.CollectionSpec, error) {
	spec, err := loadWeir()
	if err != nil {
		return nil, fmt.Errorf("read the eBPF programs: %w", err)
	}
	if err := separateCalls(spec); err != nil {
		return nil, err
	}
	return spec, addressValues(spec)
}

// byCall are the programs that only Go runs, by BPF_PROG_TEST_RUN with an input in the map calls.
var byCall = []string{"weir_call", "weir_evaluate", "weir_evaluate_slow"}

// separateCalls gives these programs scratch of their own, see call_cpus in bpf/lib/maps.h.
func separateCalls(spec *ebpf.CollectionSpec) error {
	for _, name := range byCall {
		calls := spec.Programs[name].Instructions
		done := 0
		for i := range calls {
			if calls[i].IsLoadFromMap() && calls[i].Reference() == "cpus" {
				calls[i] = calls[i].WithReference("call_cpus")
				done++
			}
		}
		if done == 0 {
			return fmt.Errorf("the program %s uses no scratch: the eBPF programs are not what was "+
				"expected", name)
		}
	}
	return nil
}

// valuesOf are the maps with one value whose address the programs know. valueSection is where the
// variable lies that stands for it, see VALUE_OF in bpf/lib/maps.h.
var valuesOf = []string{"config", "forwarding", "gauges"}

const valueSection = ".data."

// addressValues puts the values of maps in the places of those variables.
func addressValues(spec *ebpf.CollectionSpec) error {
	for _, name := range valuesOf {
		variable, m := spec.Maps[valueSection+name], spec.Maps[name]
		if variable == nil || m == nil || variable.ValueSize != m.ValueSize || m.MaxEntries != 1 {
			return fmt.Errorf("the value of the map %s is not where it was expected in the eBPF "+
				"programs", name)
		}
		delete(spec.Maps, valueSection+name)
	}
	for _, p := range spec.Programs {
		for i, ins := range p.Instructions {
			if name, is := strings.CutPrefix(ins.Reference(), valueSection); is {
				p.Instructions[i] = ins.WithReference(name)
			}
		}
	}
	return nil
}
