package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/flow"
)

// TestLongTranslationsOfPreviousLayout migrates live translations from layout 12, where each side
// had the flags of what it had sent and both entries could count as half-open. A hidden connection
// and one through a published port continue.
func TestLongTranslationsOfPreviousLayout(t *testing.T) {
	t.Parallel()
	v := newCluster(t, natRules)
	migratesTranslations(t, v)
}

// TestLongTranslationsOfPreviousLayoutWithoutTCX does as on kernels before 6.6.
func TestLongTranslationsOfPreviousLayoutWithoutTCX(t *testing.T) {
	v := newCluster(t, natRules)
	v.byFilters()
	migratesTranslations(t, v)
}

func migratesTranslations(t *testing.T, v *cluster) {
	noTCX := v.engine.noTCX
	v.masquerade(2000, 3000)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	v.serve(v.outside, 7)
	out, err := dialFrom(v.a.Node, "192.0.2.2:7", testTimeout)
	v.must(err)
	defer out.Close()
	in, err := dialFrom(v.outside, "192.0.2.1:8080", testTimeout)
	v.must(err)
	defer in.Close()
	v.must(echoWord(out, "before"))
	v.must(echoWord(in, "before"))

	v.as12()
	previous := filepath.Join(v.dir, "layout-12")
	v.must(v.engine.Close())
	v.must(v.host.Do(func() error {
		return errors.Join(asLabels(layoutDir(v.dir)), os.Rename(layoutDir(v.dir), previous))
	}))
	v.open()
	v.engine.noTCX = noTCX
	v.must(v.engine.SetInterfaces(v.ifs))
	v.masquerade(2000, 3000)
	v.must(v.engine.Load(compile(t, natRules)))
	// Before the hooks, as the agent does: TCP may send a keepalive in between.
	for _, r := range []*podNode{v.a, v.b} {
		v.must(v.host.Do(func() error { return v.engine.SetEndpoint(r.endpoint) }))
	}
	v.publish(8080, 80)
	for _, i := range v.ifs {
		if i.Name == "lo" {
			continue
		}
		v.must(v.host.Do(func() error { _, err := v.engine.Attach(i.Index); return err }))
	}
	if _, err := os.Stat(previous); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", previous, err)
	}
	v.must(echoWord(out, "after"))
	v.must(echoWord(in, "after"))
	f := framesOf(v)
	all := f.pairs()
	if len(all) != 2 {
		t.Errorf("%d translations, not 2", len(all))
	}
	for name, x := range all {
		if x.phase() != flow.PhaseEstablished {
			t.Errorf("%s: %s", name, x.phase())
		}
	}
}

// as12 turns the engine's pins into what layout 12 would have left.
func (v *cluster) as12() {
	v.t.Helper()
	states, err := v.engine.objects.States.Memory()
	v.must(err)
	var s weirSet
	for x, err := range v.engine.entries() {
		v.must(err)
		if !x.translation() {
			continue
		}
		for i := range x.sides {
			d := x.sides[i]
			d.Flags = d.Flags&(metaMade|metaWire|metaCross|metaSource) | uint32(flow.SideSeen)
			if i == 1 {
				d.Track = 0
			}
			n, way := int64(x.place/ways), int64(x.place%ways)
			at := n*int64(unsafe.Sizeof(s)) + int64(unsafe.Offsetof(s.Side)) +
				(2*way+int64(i))*int64(unsafe.Sizeof(d))
			_, err := states.WriteAt(bytesOf([]weirSide{d}), at)
			v.must(err)
		}
	}
	v.engine.config.Layout = 12
	// The programs are today's. They would take a translation without a phase for one that is
	// opening, and the sweep would end it before a slow machine has started the next engine.
	v.engine.config.LifeSyn = int64(time.Hour)
	v.must(v.engine.putConfigLocked())
}

// asLabels gives the pin of the names of flows the name that it has before layout 13.
func asLabels(dir string) error {
	return os.Rename(filepath.Join(dir, "name_ids"), filepath.Join(dir, "labels"))
}
