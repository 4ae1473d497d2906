package kernel

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestHooksOfPreviousAreTakenAtOnce: until an engine with tables of another size knows the pods,
// the engine before it guards all interfaces. The first Attach then gives all of them the new
// programs: flows between two interfaces never meet two engines.
func TestHooksOfPreviousAreTakenAtOnce(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	takesHooksAtOnce(t, v)
	for index, a := range v.engine.links {
		for d, l := range a.links {
			if l == nil { // the kernel has filters
				continue
			}
			info, err := l.Info()
			v.must(err)
			p, err := v.engine.programLocked(a.framing, d)
			v.must(err)
			want, err := p.Info()
			v.must(err)
			if id, ok := want.ID(); !ok || info.Program != id {
				t.Errorf("interface %d %s: program %d, not %d", index, directions[d].name,
					info.Program, id)
			}
		}
	}
}

// TestLongFiltersOfPreviousAreTakenAtOnce does as on kernels before 6.6.
func TestLongFiltersOfPreviousAreTakenAtOnce(t *testing.T) {
	v := newCluster(t, openRules)
	v.byFilters()
	takesHooksAtOnce(t, v)
	for index, a := range v.engine.links {
		for d := range directions {
			p, err := v.engine.programLocked(a.framing, d)
			v.must(err)
			info, err := p.Info()
			v.must(err)
			id, _ := info.ID()
			out, err := v.host.Command("tc", "filter", "show", "dev", v.linkName(index),
				[]string{"ingress", "egress"}[d]).CombinedOutput()
			v.must(err)
			if want := fmt.Sprintf(" id %d ", id); strings.Count(string(out), "handle") != 1 ||
				!strings.Contains(string(out), want) {
				t.Errorf("interface %d %s: not program%sbut %s", index, directions[d].name,
					want, out)
			}
		}
	}
}

func takesHooksAtOnce(t *testing.T, v *cluster) {
	noTCX := v.engine.noTCX
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
	v.engine.noTCX = noTCX
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
	layouts := filepath.Join(filepath.Dir(v.dir), "weir*", "layout-*")
	if dirs, _ := filepath.Glob(layouts); len(dirs) != 1 {
		t.Errorf("pins in %v", dirs)
	}
}

func (v *cluster) linkName(index uint32) string {
	v.t.Helper()
	l, err := v.host.Netlink().LinkByIndex(int(index))
	v.must(err)
	return l.Name
}
