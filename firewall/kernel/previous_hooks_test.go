package kernel

import (
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestHooksOfPreviousAreTakenAtOnce: until an engine with tables of another size knows the pods,
// the engine before it guards all interfaces. The first Attach then gives all of them the new
// programs: flows between two interfaces never meet two engines.
func TestHooksOfPreviousAreTakenAtOnce(t *testing.T) {
	v := newCluster(t, openRules)
	if v.engine.noTCX {
		t.Skip("without tcx there are filters, which each Attach replaces for itself")
	}
	before := len(v.engine.Attached())
	if before < 3 {
		t.Fatalf("%d interfaces are guarded", before)
	}
	v.must(v.engine.Close())
	o := firewall.DefaultOptions()
	o.MaxStates /= 2
	v.must(v.host.Do(func() (err error) {
		v.engine, err = openShared(t, Config{Dir: v.dir, Options: o})
		return err
	}))
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.host.Do(func() error { return v.engine.Load(compile(t, openRules)) }))
	for _, r := range []*podNode{v.a, v.b} {
		v.must(v.host.Do(func() error { return v.engine.SetEndpoint(r.endpoint) }))
	}
	if now := v.engine.Attached(); len(now) != 0 {
		t.Errorf("interfaces %v are guarded before all pods are known", now)
	}
	all, err := v.engine.Endpoints()
	v.must(err)
	if len(all) != 2 {
		t.Errorf("%d endpoints before the hooks", len(all))
	}
	nic := v.ifs[1].Index
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(nic); return err }))
	if now := v.engine.Attached(); len(now) != before {
		t.Errorf("interfaces %v are guarded after one Attach, %d were before", now, before)
	}
	for index, a := range v.engine.links {
		for d, l := range a.links {
			info, err := l.Info()
			v.must(err)
			p, err := v.engine.program(a.framing, d)
			v.must(err)
			want, err := p.Info()
			v.must(err)
			if id, ok := want.ID(); !ok || info.Program != id {
				t.Errorf("interface %d %s: program %d, not %d", index, directions[d].name,
					info.Program, id)
			}
		}
	}
	layouts := filepath.Join(filepath.Dir(v.dir), "weir*", "layout-*")
	if dirs, _ := filepath.Glob(layouts); len(dirs) != 1 {
		t.Errorf("pins in %v", dirs)
	}
}
