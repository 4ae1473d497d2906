package kernel

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// renew makes the maps as new. Nothing is attached any more then.
func (s *objectSet) renew() error {
	if err := s.detach(); err != nil {
		return err
	}
	all := byName[ebpf.Map](&s.objects.weirMaps)
	// The timer of the sweep first: it writes to others. One that runs takes some microseconds.
	if err := empty(s.objects.ClockHands); err != nil {
		return fmt.Errorf("end the sweep: %w", err)
	}
	time.Sleep(10 * time.Millisecond)
	for name, m := range all {
		if err := s.empty(name, *m); err != nil {
			return fmt.Errorf("empty %s: %w", name, err)
		}
	}
	return nil
}

// detach ends the links that a test left.
func (s *objectSet) detach() error {
	var ids []ebpf.ProgramID
	for _, p := range byName[ebpf.Program](&s.objects.weirPrograms) {
		if *p == nil {
			continue
		}
		info, err := (*p).Info()
		if err != nil {
			return err
		}
		id, _ := info.ID()
		ids = append(ids, id)
	}
	links := &link.Iterator{}
	defer func() { links.Close() }()
	for {
		if !links.Next() {
			if !errors.Is(links.Err(), unix.EAGAIN) {
				return links.Err()
			}
			// The kernel is making the next link, for another test: no engine uses this set.
			links = &link.Iterator{ID: links.ID + 1}
			continue
		}
		info, err := links.Link.Info()
		if err != nil {
			return err
		}
		if !slices.Contains(ids, info.Program) {
			continue
		}
		if err := links.Link.Detach(); err != nil && !gone(err) {
			return fmt.Errorf("detach what a test left: %w", err)
		}
	}
}

// empty makes a map as it is when it is made.
func (s *objectSet) empty(name string, m *ebpf.Map) error {
	array := m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray
	switch {
	case m.Type() == ebpf.Array && m.Flags()&ebpfMmapable != 0:
		return clearMemory(m)
	case array && m.MaxEntries() >= manyEntries:
		return s.zero(name, m)
	case m.Type() == ebpf.ArrayOfMaps:
		return s.deleteInner(name, m)
	}
	return empty(m)
}

// empty does it by system calls for each entry.
func empty(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.RingBuf:
		return drain(m)
	case ebpf.Array, ebpf.PerCPUArray:
		return clearArray(m)
	}
	return deleteAll(m)
}

// manyEntries is from how many entries on a map is cleared by a program in the kernel. A system
// call copies each entry, for 130 ms in all maps of the default sizes.
const manyEntries = 1024

// program returns the program that empties a map, which it loads the first time.
func (s *objectSet) program(name string, m *ebpf.Map,
	load func(*ebpf.Map) (*ebpf.Program, error)) (p *ebpf.Program, err error) {
	if p = s.programs[name]; p == nil {
		if p, err = load(m); err == nil {
			s.programs[name] = p
		}
	}
	return p, err
}

// zero clears an array, for each processor on that processor.
func (s *objectSet) zero(name string, m *ebpf.Map) error {
	p, err := s.program(name, m, zeroProgram)
	if err != nil {
		return err
	}
	if m.Type() == ebpf.Array {
		_, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		return err
	}
	for cpu := range ebpf.MustPossibleCPU() {
		ended := make(chan error)
		go func() {
			runtime.LockOSThread() // and ends the thread, whose processor is chosen
			var only unix.CPUSet
			only.Set(cpu)
			err := unix.SchedSetaffinity(0, &only)
			if errors.Is(err, unix.EINVAL) { // it is not online: nothing ran there
				err = nil
			} else if err == nil {
				_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
			}
			ended <- err
		}()
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// zeroProgram loads a program that sets every byte of an array, or of the part of the processor
// that it runs on, to zero.
func zeroProgram(m *ebpf.Map) (*ebpf.Program, error) {
	result := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	function := func(name string, l btf.FuncLinkage) *btf.Func {
		return &btf.Func{Name: name, Type: &btf.FuncProto{Return: result}, Linkage: l}
	}
	each := asm.LoadImm(asm.R2, -1, asm.DWord)
	each.Src = asm.PseudoFunc
	code := asm.Instructions{
		btf.WithFuncMetadata(asm.LoadMapPtr(asm.R1, m.FD()), function("zero", btf.GlobalFunc)),
		each.WithReference("each"),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnForEachMapElem.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
	begin := len(code)
	code = append(code, asm.Mov.Imm(asm.R1, 0))
	for at := uint32(0); at < m.ValueSize(); {
		size, n := asm.Byte, uint32(1)
		switch {
		case m.ValueSize()-at >= 8:
			size, n = asm.DWord, 8
		case m.ValueSize()-at >= 4:
			size, n = asm.Word, 4
		}
		code = append(code, asm.StoreMem(asm.R3, int16(at), asm.R1, size))
		at += n
	}
	code = append(code, asm.Mov.Imm(asm.R0, 0), asm.Return())
	code[begin] = btf.WithFuncMetadata(code[begin].WithSymbol("each"),
		function("each", btf.StaticFunc))
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: "zero", Type: ebpf.SchedCLS,
		License: "GPL", Instructions: code})
}

// deleteInner takes all maps out of an array of maps. A program finds them: on kernels before 6.8 a
// system call that looks one up waits for all processors, also where there is none.
func (s *objectSet) deleteInner(name string, m *ebpf.Map) error {
	p, err := s.program(name, m, findProgram)
	if err != nil {
		return err
	}
	for {
		found, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		if err != nil || found == noneFound {
			return err
		}
		if err := m.Delete(found); err != nil {
			return err
		}
	}
}

// noneFound is what the program of findProgram returns for an array without maps.
const noneFound = 1<<32 - 1

// findProgram returns the index of the first map in an array of maps. The verifier follows each
// turn of the loop to its end before it begins the next one, so that few branches are open.
func findProgram(m *ebpf.Map) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: "find", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R6, 0),
			asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word).WithSymbol("turn"),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "next"),
			asm.Mov.Reg(asm.R0, asm.R6),
			asm.Return(),
			asm.Add.Imm(asm.R6, 1).WithSymbol("next"),
			asm.JLT.Imm(asm.R6, int32(m.MaxEntries()), "turn"),
			asm.Mov.Imm(asm.R0, -1),
			asm.Return(),
		}})
}

func (s *objectSet) close() error {
	err := s.objects.Close()
	for _, p := range s.programs {
		err = errors.Join(err, p.Close())
	}
	return err
}

const ebpfMmapable = 1 << 10 // BPF_F_MMAPABLE

func drain(m *ebpf.Map) error {
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Flush(); err != nil {
		return err
	}
	for {
		if _, err := r.Read(); errors.Is(err, ringbuf.ErrFlushed) ||
			errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func clearMemory(m *ebpf.Map) error {
	memory, err := m.Memory()
	if err != nil {
		return err
	}
	zero := make([]byte, 1<<16)
	for at := 0; at < int(memory.Size()); at += len(zero) {
		n := min(len(zero), int(memory.Size())-at)
		if _, err := memory.WriteAt(zero[:n], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

func clearArray(m *ebpf.Map) error {
	const batch = 4096
	each := 1
	if m.Type() == ebpf.PerCPUArray {
		each = ebpf.MustPossibleCPU()
	}
	value := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	for at := uint32(0); at < m.MaxEntries(); at += batch {
		keys := make([]uint32, min(batch, m.MaxEntries()-at))
		for i := range keys {
			keys[i] = at + uint32(i)
		}
		values := reflect.MakeSlice(reflect.SliceOf(value), len(keys)*each, len(keys)*each)
		if _, err := m.BatchUpdate(keys, values.Interface(), nil); err != nil {
			return err
		}
	}
	return nil
}

func deleteAll(m *ebpf.Map) error {
	var keys [][]byte
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		keys = append(keys, slices.Clone(key))
	}
	if err := entries.Err(); err != nil {
		return err
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}
