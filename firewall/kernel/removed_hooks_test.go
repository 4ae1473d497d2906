package kernel

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/nl"
)

// removed returns the interfaces whose hooks are found to be removed.
func (g *pairLab) removed(t *testing.T) (indexes []uint32) {
	t.Helper()
	err := g.server.Do(func() (err error) {
		indexes, err = g.engine.RemovedHooks()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return indexes
}

// TestRemovedHooksAreAttachedAgain: hooks that another program has removed are found, one direction
// is enough, and the next Attach puts them back. Those that are there, and those of an interface
// that is gone, are not found.
func TestRemovedHooksAreAttachedAgain(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	unlink := func(direction int) {
		if err := g.engine.links[g.index].links[direction].Detach(); err != nil {
			t.Fatal(err)
		}
	}
	step := func(what string, remove func()) {
		t.Helper()
		if all := g.removed(t); len(all) > 0 {
			t.Errorf("before %s: %v", what, all)
		}
		remove()
		if all := g.removed(t); !slices.Equal(all, []uint32{g.index}) {
			t.Errorf("%s: found %v", what, all)
		}
		g.attach(t)
		g.answers(t, "after "+what, "80")
	}
	step("the link of ingress", func() { unlink(0) })
	step("the link of egress", func() { unlink(1) })
	g.byFilters(t)
	step("clsact", func() {
		g.tc(t, "qdisc del dev eth0 clsact")
		g.answers(t, "without clsact", "80", "81")
	})
	step("the filter of ingress", func() { g.tc(t, "filter del dev eth0 ingress") })
	step("the filter of egress", func() { g.tc(t, "filter del dev eth0 egress") })
	g.server.IP("link del eth0")
	if all := g.removed(t); len(all) > 0 {
		t.Errorf("without the interface: %v", all)
	}
}

// theirFilter puts a filter of another owner in the place of the engine's, with its name.
func (g *pairLab) theirFilter(t *testing.T, index int, at nl.FilterPlace, name string) {
	t.Helper()
	program := strange(t, ebpf.SchedCLS, name, -1)
	g.must(t, g.server.Do(func() error {
		c, err := openNetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		return c.SetFilter(index, at, program.FD(), name)
	}))
}

// TestFiltersUnderOurNames: a filter of another program in the place of Weir's is not taken for it,
// whatever its name. The same program in the place of the loopback's hook is not, either.
func TestFiltersUnderOurNames(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.byFilters(t)
	for d, at := range filterPlaces {
		if all := g.removed(t); len(all) > 0 {
			t.Errorf("before: %v", all)
		}
		g.theirFilter(t, int(g.index), at, filterName(d))
		if all := g.removed(t); !slices.Equal(all, []uint32{g.index}) {
			t.Errorf("%s: found %v", directions[d].name, all)
		}
		g.attach(t)
		g.answers(t, "attached again", "80")
	}
	keep := func(want bool) {
		t.Helper()
		g.must(t, g.server.Do(func() error {
			removed, err := g.engine.KeepLocal()
			if removed != want {
				t.Errorf("the loopback's hook: removed %v", removed)
			}
			return err
		}))
	}
	g.must(t, g.server.Do(func() error {
		g.engine.mu.Lock()
		defer g.engine.mu.Unlock()
		return g.engine.attachLocalLocked()
	}))
	keep(false)
	g.theirFilter(t, loopback, nl.BeforeEgress, localName)
	keep(true)
	keep(false)
}
