package kernel

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/packet/build"
)

// TestPodIsDeletedAgain: if the states of a pod cannot be ended, the pod is deleted again. This
// engine does that, or the one of the next process, which knows what the kernel has. Before that
// has succeeded no other pod may get its addresses.
func TestPodIsDeletedAgain(t *testing.T) {
	for _, next := range []bool{false, true} {
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
		index, restore := f.a.endpoint.Index, f.withoutCalls()
		err := f.engine.DeleteEndpoint(index)
		restore()
		if n := left(); err == nil || n != 1 {
			t.Errorf("%v, %d states: the kernel could not end them", err, n)
		}
		if next {
			f.engine.undeleted = map[uint32]weirEndpoint{}
			f.must(f.engine.readForwarding())
		}
		f.must(f.engine.DeleteEndpoint(index))
		if n := left(); n != 0 {
			t.Errorf("the next process %v: %d states are left", next, n)
		}
		all, err := readAll[uint32, weirEndpoint](f.engine.objects.Endpoints)
		if _, there := all[index]; err != nil || there {
			t.Errorf("the next process %v: %v, the endpoint is there: %v", next, err, there)
		}
	}
}

// withoutCalls takes from the engine what it asks the kernel to change states with, until the
// returned function is called.
func (f *frames) withoutCalls() (restore func()) {
	f.t.Helper()
	call := &f.engine.call
	closed, err := call.prog.Clone()
	f.must(errors.Join(err, closed.Close()))
	prog := call.prog
	set := func(p *ebpf.Program) {
		call.mu.Lock()
		defer call.mu.Unlock()
		call.prog = p
	}
	set(closed)
	return func() { set(prog) }
}
