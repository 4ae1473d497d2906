package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
)

// testRunBuffer is the memory that the programs weir_call and weir_evaluate share with this
// process, and the lock for its use.
type testRunBuffer struct {
	mu     sync.Mutex
	memory *ebpf.Memory
	prog   *ebpf.Program
	tick   *ebpf.Program // weir_tick, which does opTick
	frame  []byte
}

func (r *testRunBuffer) open(calls *ebpf.Map, prog, tick *ebpf.Program) error {
	m, err := calls.Memory()
	if err != nil {
		return fmt.Errorf("map the memory for calls: %w", err)
	}
	r.memory, r.prog, r.tick = m, prog, tick
	return nil
}

// run runs a program with the input in, over a frame, and reads the output back into in.
func (r *testRunBuffer) run(prog *ebpf.Program, in *weirCall, frame []byte) error {
	return r.runIn(prog, in, frame, nil)
}

// runIn is run with a struct __sk_buff, unless context is nil.
func (r *testRunBuffer) runIn(prog *ebpf.Program, in *weirCall, frame, context []byte) error {
	size := int(unsafe.Sizeof(*in))
	b := unsafe.Slice((*byte)(unsafe.Pointer(in)), size)
	if _, err := r.memory.WriteAt(b, 0); err != nil {
		return err
	}
	o := ebpf.RunOptions{Data: frame}
	if context != nil {
		o.Context = context
	}
	code, err := prog.Run(&o)
	if err != nil {
		return fmt.Errorf("call the eBPF program over a frame of %d bytes: %w", len(frame), err)
	}
	if code != 0 {
		return errors.New("call the eBPF program: it does not know the layout of its maps")
	}
	_, err = r.memory.ReadAt(b, 0)
	return err
}

// nothing is a frame for calls that need none: the kernel wants one byte behind an Ethernet header.
var nothing = make([]byte, 64)

// ask has the kernel do what in describes.
func (r *testRunBuffer) ask(in *weirCall) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	prog := r.prog
	if in.Op == opTick {
		prog = r.tick
	}
	return r.run(prog, in, nothing)
}

// adopt has the kernel adopt what the calls describe, and sets their results. The lock is free now
// and then: others may call between two runs.
func (r *testRunBuffer) adopt(calls []weirCall) error {
	for len(calls) > 0 {
		n := min(len(calls), adoptBatch)
		if n < len(calls) && calls[n].Count&adoptPartner != 0 { // a translation stays together
			n--
		}
		if err := r.adoptRun(calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// adoptRun has the kernel adopt at most adoptBatch states in one run.
func (r *testRunBuffer) adoptRun(calls []weirCall) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, behind := bytesOf(calls), int64(unsafe.Sizeof(calls[0])) // behind the call itself
	if _, err := r.memory.WriteAt(b, behind); err != nil {
		return err
	}
	c := weirCall{Op: opAdoptMany, Count: uint32(len(calls))}
	if err := r.run(r.prog, &c, nothing); err != nil {
		return err
	}
	if c.Result != int64(len(calls)) {
		return fmt.Errorf("the kernel has adopted %d states of %d", c.Result, len(calls))
	}
	_, err := r.memory.ReadAt(b, behind)
	return err
}

// Evaluate has the kernel evaluate one IP packet as if it passed a hook, with the given time and
// random word. It has all effects: states are made and rules are counted. in.Hook may name
// interfaces that do not exist.
//
// Times of Evaluate and of real packets do not mix: an engine is used for one or for the other.
func (e *Engine) Evaluate(in *firewall.Input, b []byte) (firewall.Verdict, error) {
	prog, err := e.evaluator()
	if err != nil {
		return firewall.Verdict{}, err
	}
	r := &e.call
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frame = append(r.frame[:0], frameFor(b)...)
	r.frame = append(r.frame, b...)
	c := weirCall{Now: int64(in.Now), Random: in.Random, Recv: in.Hook.Recv, Xmit: in.Hook.Xmit,
		Dir: uint8(in.Hook.Dir)}
	c.Tags = uint8(copy(c.Tag[:], in.Tags))
	var context []byte
	if len(in.Segments) > 0 && in.Segments[0] > 0 {
		context = make([]byte, skbSize)
		binary.NativeEndian.PutUint32(context[176:], uint32(in.Segments[0])) // gso_size
	}
	if err := r.runIn(prog, &c, r.frame, context); err != nil {
		return firewall.Verdict{}, err
	}
	o := &c.Out
	return firewall.Verdict{
		Pass: o.Pass != 0, Reason: firewall.Reason(o.Reason), Rule: o.Number, Slot: uint16(o.Slot),
		Answer: firewall.Answer(o.Answer), Code: o.Code, State: firewall.StateUse(o.State),
	}, nil
}

// evaluator returns the program of Evaluate.
func (e *Engine) evaluator() (*ebpf.Program, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.needLocked("weir_evaluate")
	return e.objects.WeirEvaluate, err
}

// frameFor returns the Ethernet header for a packet. The kernel wants a test frame of IP to hold a
// whole IP header; it does not look behind a VLAN tag.
func frameFor(b []byte) []byte {
	header := make([]byte, 12, 18)
	if len(b) < 40 {
		header = append(header, 0x81, 0, 0, 0)
	}
	if len(b) > 0 && b[0]>>4 == 6 {
		return append(header, 0x86, 0xdd)
	}
	return append(header, 0x08, 0)
}

// gone reports whether an error only means that the object no longer exists.
func gone(err error) bool {
	return errors.Is(err, unix.ENOLINK) || errors.Is(err, unix.ENODEV) ||
		errors.Is(err, unix.ENOENT)
}
