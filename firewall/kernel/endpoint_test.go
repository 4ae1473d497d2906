package kernel

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/packet/build"
)

// TestPodIsDeletedAgain: if the states of a pod cannot be ended, the pod is deleted again. Before
// that has succeeded no other pod may get its addresses.
func TestPodIsDeletedAgain(t *testing.T) {
	f := newFrames(t, natRules)
	f.send(end(podA, 10000), end(podB, 7), build.UDP{})
	left := func() (n int) {
		t.Helper()
		for x, err := range f.engine.entries() {
			f.must(err)
			if from, _ := x.original(); from.Addr() == podA {
				n++
			}
		}
		return n
	}
	if n := left(); n != 1 {
		t.Fatalf("%d states", n)
	}
	call := &f.engine.call
	closed, err := call.prog.Clone()
	f.must(errors.Join(err, closed.Close()))
	index, prog := f.a.endpoint.Index, call.prog
	setProgram := func(p *ebpf.Program) {
		call.mu.Lock()
		call.prog = p
		call.mu.Unlock()
	}
	setProgram(closed)
	err = f.engine.DeleteEndpoint(index)
	setProgram(prog)
	if n := left(); err == nil || n != 1 {
		t.Errorf("%v, %d states: the kernel could not end them", err, n)
	}
	f.must(f.engine.DeleteEndpoint(index))
	if n := left(); n != 0 {
		t.Errorf("%d states are left", n)
	}
}
