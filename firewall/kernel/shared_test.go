package kernel

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
)

// The kernel verifies the programs for seconds. Tests therefore share them: a set of maps and
// programs that a test has finished with is made as new, and becomes the next engine's. A test has
// its sets until it ends: one that needs several engines in a row opens each in a part (t.Run).
//
// Tests that wait, for packets or for the kernel, run in parallel. They run after the others: those
// that measure, that compete for processors or change the limits of the process, and the shortest.

// objectSet is what Open makes: maps of certain sizes, and programs that work on them. Those on
// demand are there when an engine has needed them.
type objectSet struct {
	sizes   [3]uint32
	objects weirObjects
	// by the maps that they empty, see zeroProgram and findProgram
	programs map[string]*ebpf.Program
	inUse    bool // guarded by setsMu
}

// sets are those that there are, the one used last at the end.
var (
	setsMu sync.Mutex
	sets   []*objectSet // guarded by setsMu
)

// Each size of tables costs a second or two of the verifier's work: tests ask for few.
//
// mostSets is how many stay. Those of the default sizes take 100 MB; there are four of them when
// four tests run in parallel.
const mostSets = 16

// openShared is Open for an engine that the test closes before it ends.
func openShared(t testing.TB, c Config) (*Engine, error) {
	return openWith(c, func(e *Engine, spec *ebpf.CollectionSpec, old replacements) error {
		if len(old) > 0 {
			return e.loadPrograms(spec, old)
		}
		return share(t, e, spec)
	})
}

// share gives an engine a set of the sizes that spec has until the test ends.
func share(t testing.TB, e *Engine, spec *ebpf.CollectionSpec) error {
	s, err := takeSet(spec)
	if err != nil {
		return err
	}
	t.Cleanup(s.putBack)
	e.loadMore = s.load
	return s.cloneTo(e)
}

// takeSet returns an unused set of the sizes that spec has.
func takeSet(spec *ebpf.CollectionSpec) (*objectSet, error) {
	sizes := [3]uint32{spec.Maps["states"].MaxEntries, spec.Maps["tracks"].MaxEntries,
		spec.Maps["source_ring"].MaxEntries}
	s, surplus := reserveSet(sizes)
	if s != nil {
		return s, s.renew()
	}
	if surplus != nil {
		if err := surplus.close(); err != nil {
			return nil, err
		}
	}
	maker := &Engine{}
	if err := maker.loadPrograms(spec, replacements{}); err != nil {
		return nil, err
	}
	s = &objectSet{sizes: sizes, objects: maker.objects,
		programs: map[string]*ebpf.Program{}, inUse: true}
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
	// the one used last first: it has most of the programs on demand
	for i, s := range slices.Backward(sets) {
		if !s.inUse && s.sizes == sizes {
			sets = append(slices.Delete(sets, i, i+1), s)
			s.inUse = true
			return s, nil
		}
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

// newMaps gives an engine maps of the sizes of its options, without programs, until the test ends.
func newMaps(t *testing.T, e *Engine) {
	t.Helper()
	spec, err := loadWeir()
	if err != nil {
		t.Fatal(err)
	}
	e.size(spec)
	if err := spec.LoadAndAssign(&e.objects.weirMaps, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.objects.weirMaps.Close() })
}

// differs names a map that holds something else than a new one.
func (s *objectSet) differs(t *testing.T) string {
	t.Helper()
	fresh := &Engine{options: firewall.DefaultOptions()}
	newMaps(t, fresh)
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
