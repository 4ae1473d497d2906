package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// TestProgramsAreTakenOver: the next engine of the same build loads no programs; one of another
// build does, and takes the old ones away.
func TestProgramsAreTakenOver(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	if err := g.engine.needLocked("weir_local"); err != nil {
		t.Fatal(err)
	}
	wantPins := len(g.engine.programs()) + 1
	id := func() any {
		info, err := g.engine.objects.WeirIn.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		link, err := g.engine.links[g.index].links[0].Info()
		if err != nil || link.Program != id {
			t.Errorf("the link runs program %d, the engine has %d (%v)", link.Program, id, err)
		}
		return id
	}
	first := id()
	load := func(reused bool) {
		t.Helper()
		g.reopen(t)
		if err := g.engine.Load(compile(t, webRules)); err != nil {
			t.Fatal(err)
		}
		if g.engine.reused != reused {
			t.Errorf("the programs were taken over: %v", g.engine.reused)
		}
		if pins, _ := filepath.Glob(filepath.Join(layoutDir(g.dir),
			"prog-*")); len(pins) != wantPins {
			t.Errorf("pins of programs: %v", pins)
		}
		g.answers(t, "loaded", "80")
	}
	load(true)
	if id() != first {
		t.Error("a program was loaded again")
	}
	pins, _ := filepath.Glob(filepath.Join(layoutDir(g.dir), "prog-*"))
	for i, p := range pins { // as of another build
		if err := os.Rename(p, filepath.Join(layoutDir(g.dir),
			fmt.Sprintf("prog-0123456789abcdef-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	wantPins = len(g.engine.programs()) // none on demand
	load(false)
	if id() == first {
		t.Error("the program of another build still runs")
	}
	// A start that was cut short has pinned some.
	if err := os.Remove(g.engine.programPath("weir_out")); err != nil {
		t.Fatal(err)
	}
	load(false)
	load(true)
}

// TestProgramsOnDemand: an engine loads the programs of tunnels when it attaches to the first one,
// and the next engine takes them over.
func TestProgramsOnDemand(t *testing.T) {
	t.Parallel()
	lab := nstest.New(t)
	server := lab.Node("server")
	_, index := tunOf(t, server, "tun0", unix.ARPHRD_NONE, "10.9.9.1/24")
	c := Config{Dir: filepath.Join(nstest.Bpffs(t), "weir"), Options: firewall.DefaultOptions()}
	start := func() (e *Engine) {
		t.Helper()
		if err := server.Do(func() (err error) {
			if e, err = Open(c); err == nil {
				err = e.Load(compile(t, webRules))
			}
			return err
		}); err != nil {
			t.Fatalf("%+v", err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	program := func(e *Engine) ebpf.ProgramID {
		t.Helper()
		info, err := e.objects.WeirOutL3.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		return id
	}
	t.Cleanup(func() {
		if err := server.Do(func() error { return Remove(c.Dir) }); err != nil {
			t.Error(err)
		}
	})
	e := start()
	for name, p := range byName[ebpf.Program](&e.objects.weirPrograms) {
		if loaded := *p != nil; loaded == slices.Contains(onDemand, name) {
			t.Errorf("%s is loaded: %v", name, loaded)
		}
	}
	if err := server.Do(func() error { _, err := e.Attach(index); return err }); err != nil {
		t.Fatal(err)
	}
	first := program(e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e = start(); program(e) != first {
		t.Error("the next engine has loaded the programs again")
	}
	if info, err := e.links[index].links[1].Info(); err != nil || info.Program != first {
		t.Errorf("the link runs program %v, not %d: %v", info, first, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// The pin is gone, as after a pin that failed: the link gets a new program.
	if err := os.Remove(e.programPath("weir_out_l3")); err != nil {
		t.Fatal(err)
	}
	if e = start(); program(e) == first {
		t.Error("the program is the one whose pin is gone")
	}
	if info, err := e.links[index].links[1].Info(); err != nil || info.Program != program(e) {
		t.Errorf("the link runs program %v: %v", info, err)
	}
	if _, err := os.Stat(e.programPath("weir_out_l3")); err != nil {
		t.Error(err)
	}
}
