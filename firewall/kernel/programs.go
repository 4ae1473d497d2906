package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
)

// The kernel takes more than a second to verify the programs. They are pinned, under the hash of
// the object file that they were loaded from. So an engine of the same build that takes the maps
// over takes the programs over, too. Another build loads its own.

// buildID names the object file that the programs come from.
var buildID = sync.OnceValue(func() string {
	sum := sha256.New()
	sum.Write([]byte(edits))
	sum.Write(_WeirBytes)
	return hex.EncodeToString(sum.Sum(nil)[:8])
})

// programs returns the programs that every host needs by their names in C.
func (e *Engine) programs() map[string]**ebpf.Program {
	all := byName[ebpf.Program](&e.objects.weirPrograms)
	for _, name := range onDemand {
		delete(all, name)
	}
	return all
}

// onDemand are loaded when they are needed first: those of hooks take the kernel a third of a
// second each, and few hosts need all.
var onDemand = []string{"weir_in_l3", "weir_out_l3", "weir_in_ib", "weir_out_ib", "weir_local",
	"weir_in_netkit", "weir_evaluate", "weir_in_l3_slow", "weir_out_l3_slow",
	"weir_in_netkit_slow", "weir_evaluate_slow"}

// slowPaths are the second programs of hooks, by the name of the first ones: these call them by
// their index in a map.
var slowPaths = map[string]struct {
	name  string
	index uint32
}{
	"weir_in":        {"weir_in_slow", slowIn},
	"weir_out":       {"weir_out_slow", slowOut},
	"weir_in_netkit": {"weir_in_netkit_slow", slowInNetkit},
	"weir_in_l3":     {"weir_in_l3_slow", slowInL3},
	"weir_out_l3":    {"weir_out_l3_slow", slowOutL3},
	"weir_evaluate":  {"weir_evaluate_slow", slowEvaluate},
}

// putSlowPaths lets the first programs call the second ones among those given that are loaded.
// Programs of another build that are attached yet call them, too: what they hand over is a part of
// the layout.
func (e *Engine) putSlowPaths(programs map[string]**ebpf.Program) error {
	for _, s := range slowPaths {
		p := programs[s.name]
		if p == nil || *p == nil {
			continue
		}
		if err := e.objects.SlowPaths.Put(s.index, *p); err != nil {
			return fmt.Errorf("set the program %s: %w", s.name, err)
		}
	}
	return nil
}

func (e *Engine) programPath(name string) string {
	return filepath.Join(e.dir, "prog-"+buildID()+"-"+name)
}

// loader fills the objects of an engine, see loadPrograms.
type loader func(*Engine, *ebpf.CollectionSpec, replacements) error

// loadPrograms makes the maps, or takes those of old, and loads the programs, or takes those that
// are pinned for the same maps.
func (e *Engine) loadPrograms(spec *ebpf.CollectionSpec, old replacements) error {
	options := &ebpf.CollectionOptions{MapReplacements: old}
	if err := spec.LoadAndAssign(&e.objects.weirMaps, options); err != nil {
		return err
	}
	if e.takenOver {
		var err error
		if e.reused, err = e.reuse(e.programs()); err != nil || e.reused {
			return err
		}
	}
	if err := e.load(spec, e.programs()); err != nil || e.takenOver {
		return err // those that the attached programs call stay until the first Load
	}
	return e.putSlowPaths(e.programs())
}

// loadsAtOnce is how many programs the kernel verifies at the same time at most, each on a CPU of
// its own.
const loadsAtOnce = 4

// load loads programs for the maps of e, all or none.
func (e *Engine) load(spec *ebpf.CollectionSpec, programs map[string]**ebpf.Program) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error // guarded by mu
	turns := make(chan struct{}, min(loadsAtOnce, runtime.NumCPU()))
	for name, p := range programs {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			var err error
			if *p, err = e.loadOne(spec, name); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(errs) == 0 {
		return nil
	}
	for _, p := range programs {
		errs = append(errs, (*p).Close()) // nil is fine
		*p = nil
	}
	return errors.Join(errs...)
}

// loadOne loads one program for the maps of e.
func (e *Engine) loadOne(spec *ebpf.CollectionSpec, name string) (*ebpf.Program, error) {
	// to copy all programs takes as long as everything else here but the verifier
	one := *spec
	one.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	spec = one.Copy()
	options := ebpf.CollectionOptions{MapReplacements: replacements{}}
	for name, m := range byName[ebpf.Map](&e.objects.weirMaps) {
		options.MapReplacements[name] = *m
	}
	c, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(name), nil
}

// needLocked makes sure that programs of onDemand are there: those that an engine of this build has
// pinned, or new ones, which are pinned when the others are.
func (e *Engine) needLocked(names ...string) error {
	all, missing := byName[ebpf.Program](&e.objects.weirPrograms), map[string]**ebpf.Program{}
	for _, name := range names {
		if *all[name] != nil {
			continue
		}
		missing[name] = all[name]
		if slow, has := slowPaths[name]; has {
			missing[slow.name] = all[slow.name]
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if e.reused {
		if there, err := e.reuse(missing); err != nil {
			return err
		} else if there {
			return e.putSlowPaths(missing)
		}
	}
	spec, err := readPrograms()
	if err != nil {
		return err
	}
	for name, m := range e.maps() {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	load := e.load
	if e.loadMore != nil {
		load = e.loadMore
	}
	if err := load(spec, missing); err != nil {
		return loadError(err)
	}
	if err := e.putSlowPaths(missing); err != nil {
		return err
	}
	if !e.pinned {
		return nil
	}
	return e.pinSome(missing)
}

// reuse takes the pinned programs of this build, all or none: a start may have ended while it
// pinned them. It reports whether they were there.
func (e *Engine) reuse(programs map[string]**ebpf.Program) (there bool, err error) {
	defer func() {
		if !there {
			for _, p := range programs {
				if *p != nil {
					err = errors.Join(err, (*p).Close())
				}
				*p = nil
			}
		}
	}()
	for name, p := range programs {
		*p, err = ebpf.LoadPinnedProgram(e.programPath(name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("take over the program %s: %w", name, err)
		}
		ours, err := e.usesOurMaps(*p)
		if err != nil || !ours {
			return false, err
		}
	}
	return true, nil
}

// usesOurMaps reports whether a program works on the maps that were taken over: each uses the
// settings, its own or those of the fast path.
func (e *Engine) usesOurMaps(p *ebpf.Program) (bool, error) {
	info, err := p.Info()
	if err != nil {
		return false, err
	}
	ids, _ := info.MapIDs()
	for _, m := range []*ebpf.Map{e.objects.Config, e.objects.Forwarding} {
		settings, err := m.Info()
		if err != nil {
			return false, err
		}
		if id, ok := settings.ID(); ok && slices.Contains(ids, id) {
			return true, nil
		}
	}
	return false, nil
}

// pinPrograms pins the programs that are loaded, and takes those of other builds away.
func (e *Engine) pinPrograms() error {
	e.pinned = true
	if e.reused {
		return nil
	}
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return err
	}
	for _, f := range entries {
		// of this build only what a start that was cut short has left
		if strings.HasPrefix(f.Name(), "prog-") {
			if err := removeIfThere(filepath.Join(e.dir, f.Name())); err != nil {
				return err
			}
		}
	}
	loaded := byName[ebpf.Program](&e.objects.weirPrograms)
	maps.DeleteFunc(loaded, func(_ string, p **ebpf.Program) bool { return *p == nil })
	return e.pinSome(loaded)
}

// pinSome pins programs by their names. What is pinned in their place goes.
func (e *Engine) pinSome(programs map[string]**ebpf.Program) error {
	for name, p := range programs {
		path := e.programPath(name)
		// a pin belongs to an object, which may be pinned for filters as well
		clone, err := (*p).Clone()
		if err != nil {
			return err
		}
		if err := errors.Join(removeIfThere(path), clone.Pin(path), clone.Close()); err != nil {
			return fmt.Errorf("pin the program %s: %w", name, err)
		}
	}
	return nil
}
