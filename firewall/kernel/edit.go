package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// edits stands for what edit does. It changes when that does.
const edits = "call_cpus config"

// edit changes the programs of the object file to what the kernel is to load.
func edit(spec *ebpf.CollectionSpec) error {
	if err := separateCalls(spec); err != nil {
		return err
	}
	return addressConfig(spec)
}

// separateCalls gives weir_call and weir_evaluate scratch of their own, see call_cpus in
// bpf/lib/maps.h.
func separateCalls(spec *ebpf.CollectionSpec) error {
	for _, name := range []string{"weir_call", "weir_evaluate"} {
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

// configValue is the section of the variable that stands for the value of the map config, see
// bpf/lib/maps.h.
const configValue = ".data.config"

// addressConfig puts the value of the map config in the place of that variable.
func addressConfig(spec *ebpf.CollectionSpec) error {
	value, config := spec.Maps[configValue], spec.Maps["config"]
	if value == nil || config == nil || value.ValueSize != config.ValueSize {
		return errors.New("the settings are not where they were expected in the eBPF programs")
	}
	for _, p := range spec.Programs {
		ins := p.Instructions
		for i := range ins {
			if ins[i].IsLoadFromMap() && ins[i].Reference() == configValue {
				ins[i] = ins[i].WithReference("config")
			}
		}
	}
	delete(spec.Maps, configValue)
	return nil
}
