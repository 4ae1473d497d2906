package kernel

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// TestLongPortAfterResize: the states were copied to an engine with tables of another size. A flow
// that began after that, and before that engine has the hooks, keeps the port that it has on the
// wire.
func TestLongPortAfterResize(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.masquerade(2000, 2999)
	from, to := end(podA, 40000), end(outsideAddr, 53)
	code, before, _ := f.send(from, to, build.UDP{})
	if code != redirected || before.Addr() != hostAddr {
		t.Fatalf("%d from %s", code, before)
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true })) // as if it came too late
	f.must(f.engine.Close())
	o := firewall.DefaultOptions()
	o.MaxStates /= 2
	f.must(f.host.Do(func() (err error) {
		f.engine, err = Open(Config{Dir: f.dir, Options: o})
		return err
	}))
	f.must(f.engine.SetInterfaces(f.ifs))
	f.masquerade(2000, 2999)
	f.must(f.host.Do(func() error { return f.engine.Load(compile(t, natRules)) }))
	for _, r := range []*podNode{f.a, f.b} {
		f.must(f.host.Do(func() error { return f.engine.SetEndpoint(r.endpoint) }))
	}
	f.must(f.host.Do(func() error { _, err := f.engine.Attach(f.ifs[1].Index); return err }))
	code, after, _ := f.send(from, to, build.UDP{})
	if code != redirected || after != before {
		t.Errorf("%d from %s, before it was %s", code, after, before)
	}
}
