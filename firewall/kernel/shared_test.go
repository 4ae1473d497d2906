package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
)

// The kernel verifies the programs for seconds. Tests therefore share them: a set of maps and
// programs that a test has finished with is made as new, and becomes the next engine's. Tests that
// mostly wait run in parallel, after the others: those that measure, that compete for processors or
// change the limits of the process.

// objectSet is what Open makes: maps of certain sizes, and programs that work on them. Those on
// demand are there when an engine has needed them.
type objectSet struct {
	sizes   [3]uint32
	objects weirObjects
	inUse   bool // guarded by setsMu
}

// sets are those that there are, the one used last at the end.
var (
	setsMu sync.Mutex
	sets   []*objectSet // guarded by setsMu
)

// mostSets is how many stay. Those of the default sizes take 100 MB; there are four of them when
// four tests run in parallel.
const mostSets = 16

// openShared is Open for an engine that the test closes before it ends.
func openShared(t testing.TB, c Config) (*Engine, error) {
	return openWith(c, func(e *Engine, spec *ebpf.CollectionSpec, old replacements) error {
		if len(old) > 0 {
			return e.loadPrograms(spec, old)
		}
		s, err := takeSet(e, spec)
		if err != nil {
			return err
		}
		t.Cleanup(s.putBack)
		e.loadMore = s.load
		return s.cloneTo(e)
	})
}

// takeSet returns an unused set of the sizes that spec has.
func takeSet(e *Engine, spec *ebpf.CollectionSpec) (*objectSet, error) {
	sizes := [3]uint32{spec.Maps["states"].MaxEntries, spec.Maps["tracks"].MaxEntries,
		spec.Maps["source_ring"].MaxEntries}
	s, surplus := reserveSet(sizes)
	if s != nil {
		return s, s.renew()
	}
	if surplus != nil {
		if err := surplus.objects.Close(); err != nil {
			return nil, err
		}
	}
	maker := &Engine{}
	if err := maker.loadPrograms(spec, replacements{}); err != nil {
		return nil, err
	}
	s = &objectSet{sizes: sizes, objects: maker.objects, inUse: true}
	setsMu.Lock()
	sets = append(sets, s)
	setsMu.Unlock()
	return s, nil
}

// reserveSet returns a set of these sizes that is used from now on. If there is none, it may take
// another one out of the list, which the caller closes.
func reserveSet(sizes [3]uint32) (reserved, surplus *objectSet) {
	setsMu.Lock()
	defer setsMu.Unlock()
	unused := func(s *objectSet) bool { return !s.inUse && s.sizes == sizes }
	if i := slices.IndexFunc(sets, unused); i >= 0 {
		s := sets[i]
		sets = append(slices.Delete(sets, i, i+1), s)
		s.inUse = true
		return s, nil
	}
	i := slices.IndexFunc(sets, func(s *objectSet) bool { return !s.inUse })
	if i < 0 || len(sets) < mostSets {
		return nil, nil
	}
	s := sets[i]
	sets = slices.Delete(sets, i, i+1)
	return nil, s
}

// putBack lets the next test have a set.
func (s *objectSet) putBack() {
	setsMu.Lock()
	defer setsMu.Unlock()
	s.inUse = false
}

// load gives an engine programs on demand. The set keeps those that it had to load.
func (s *objectSet) load(spec *ebpf.CollectionSpec, programs map[string]**ebpf.Program) error {
	missing := map[string]**ebpf.Program{}
	for name, p := range byName[ebpf.Program](&s.objects.weirPrograms) {
		if _, wanted := programs[name]; wanted && *p == nil {
			missing[name] = p
		}
	}
	if err := (&Engine{objects: s.objects}).load(spec, missing); err != nil {
		return err
	}
	return s.clonePrograms(programs)
}

// cloneTo opens the maps and the programs that every engine has again, so that one can close them.
func (s *objectSet) cloneTo(e *Engine) (err error) {
	maps := byName[ebpf.Map](&e.objects.weirMaps)
	for name, m := range byName[ebpf.Map](&s.objects.weirMaps) {
		if *maps[name], err = (*m).Clone(); err != nil {
			return err
		}
	}
	return s.clonePrograms(e.programs())
}

func (s *objectSet) clonePrograms(programs map[string]**ebpf.Program) (err error) {
	own := byName[ebpf.Program](&s.objects.weirPrograms)
	for name, p := range programs {
		if *p, err = (*own[name]).Clone(); err != nil {
			return err
		}
	}
	return nil
}

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
		if err := empty(*m); err != nil {
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
	var links link.Iterator
	defer links.Close()
	for links.Next() {
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
	return links.Err()
}

// empty makes a map as it is when it is made.
func empty(m *ebpf.Map) error {
	switch {
	case m.Type() == ebpf.RingBuf:
		return drain(m)
	case m.Type() == ebpf.Array && m.Flags()&ebpfMmapable != 0:
		return clearMemory(m)
	case m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray:
		return clearArray(m)
	}
	return deleteAll(m)
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

// TestSharedObjectsAreAsNew: after a test with states, events, tables and a running sweep, the maps
// of its set hold what new ones hold.
func TestSharedObjectsAreAsNew(t *testing.T) {
	var used *objectSet
	t.Run("use", func(t *testing.T) {
		g := newPairLab(t, "add 1 check-state\nadd allow log tcp from table(t) to me 80 setup "+
			"limit src-addr 5\n")
		used = sets[len(sets)-1]
		if err := g.engine.SetTable("t", entries("10.0.0.0/24")); err != nil {
			t.Fatal(err)
		}
		c, err := g.dial("10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := echoWord(c, "hello"); err != nil {
			t.Error(err)
		}
	})
	if used.differs(t) == "" {
		t.Error("the test has left nothing: this test could not fail")
	}
	if err := used.renew(); err != nil {
		t.Fatal(err)
	}
	if what := used.differs(t); what != "" {
		t.Error(what)
	}
}

// differs names a map that holds something else than a new one.
func (s *objectSet) differs(t *testing.T) string {
	t.Helper()
	spec, err := loadWeir()
	if err != nil {
		t.Fatal(err)
	}
	(&Engine{options: firewall.DefaultOptions()}).size(spec)
	fresh := &Engine{}
	if err := spec.LoadAndAssign(&fresh.objects.weirMaps, nil); err != nil {
		t.Fatal(err)
	}
	defer fresh.objects.weirMaps.Close()
	ours := byName[ebpf.Map](&s.objects.weirMaps)
	for name, m := range byName[ebpf.Map](&fresh.objects.weirMaps) {
		if (*m).Type() == ebpf.RingBuf {
			continue // it is read to the end
		}
		want, got := content(t, *m), content(t, *ours[name])
		if !maps.Equal(want, got) {
			return fmt.Sprintf("%s has %d entries that are not zero, a new one %d", name, len(got),
				len(want))
		}
	}
	return ""
}

// content returns what a map holds by its keys, without values of zeros.
func content(t *testing.T, m *ebpf.Map) map[string]string {
	t.Helper()
	all := map[string]string{}
	key, entries := make([]byte, m.KeySize()), m.Iterate()
	value := make([]byte, m.ValueSize())
	array := m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray
	note := func(value []byte) {
		if !array || slices.ContainsFunc(value, func(b byte) bool { return b != 0 }) {
			all[string(key)] += string(value)
		}
	}
	if m.Type() == ebpf.PerCPUArray {
		var each [][]byte
		for entries.Next(&key, &each) {
			for _, v := range each {
				note(v)
			}
		}
	} else {
		for entries.Next(&key, &value) {
			note(value)
		}
	}
	if err := entries.Err(); err != nil {
		t.Fatalf("%s: %v", m, err)
	}
	return all
}
