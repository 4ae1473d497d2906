package kernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// newPartEngine opens an engine without pins until the test ends, see openPart.
func newPartEngine(t *testing.T, o firewall.Options) *Engine {
	t.Helper()
	nstest.RequireRoot(t)
	e, err := openPart(t, o)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// openPart is openShared for an engine without pins, whose tables are not larger than the default.
// The maps are: it uses as much of them as the options say, for the programs know the sizes from
// the settings alone. So they are verified once for all sizes. To list the states takes as long as
// with whole tables: a test that does so again and again has tables of its own size.
func openPart(t testing.TB, o firewall.Options) (*Engine, error) {
	e, err := openWith(Config{Options: o}, func(e *Engine, spec *ebpf.CollectionSpec,
		_ replacements) error {
		(&Engine{options: firewall.DefaultOptions()}).size(spec)
		return share(t, e, spec)
	})
	if err != nil {
		return nil, err
	}
	c, cells := &e.config, sourceCells(o.MaxHalfOpen)
	if e.objects.States.MaxEntries() < setsFor(o.MaxStates) ||
		e.objects.Tracks.MaxEntries() < setsFor(o.MaxTracks) ||
		e.objects.SourceRing.MaxEntries() < cells {
		return nil, errors.Join(errors.New("a table larger than the default"), e.Close())
	}
	c.Sets, c.TrackSets = setsFor(o.MaxStates), setsFor(o.MaxTracks)
	c.SourceMask, c.RingMask = cells-1, cells-1
	return e, e.putConfigLocked()
}

// TestPartsAreAsWhole: an engine that uses a part of its tables has the settings of one whose
// tables have that size.
func TestPartsAreAsWhole(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	for _, sizes := range [][3]int{{1000, 1 << 16, 1 << 14}, {20000, 5000, 64}, {1, 1, 1},
		{1 << 18, 1 << 16, 1 << 14}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			o := firewall.DefaultOptions()
			o.MaxStates, o.MaxHalfOpen, o.MaxTracks = sizes[0], sizes[1], sizes[2]
			part, err := openPart(t, o)
			if err != nil {
				t.Fatal(err)
			}
			defer part.Close()
			whole := &Engine{options: o}
			newMaps(t, whole)
			if err := whole.configure(); err != nil {
				t.Fatal(err)
			}
			got, want := part.config, whole.config
			got.Seed, got.LocalMark = want.Seed, want.LocalMark // random
			got.Clock, got.Tick = want.Clock, want.Tick         // setClock needs programs
			if got != want {
				t.Errorf("the settings are %+v, not %+v", got, want)
			}
		})
	}
	o := firewall.DefaultOptions()
	o.MaxStates *= 2
	if e, err := openPart(t, o); err == nil {
		e.Close()
		t.Error("tables larger than the default are a part of these")
	}
}

// sizeAsLoaded gives the maps of spec the sizes of those that an engine has.
func (e *Engine) sizeAsLoaded(spec *ebpf.CollectionSpec) {
	for name, m := range e.maps() {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
}

// TestLRUMapsFitTheCPUs: each CPU can keep 128 free entries of an LRU map and leave as many to use.
func TestLRUMapsFitTheCPUs(t *testing.T) {
	for cpus, want := range map[int]uint32{1: 4096, 16: 4096, 64: 16384, 512: 1 << 17} {
		if got := lruEntries(4096, cpus); got != want {
			t.Errorf("%d CPUs: %d entries, want %d", cpus, got, want)
		}
	}
}
