package kernel

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// tc runs tc(8) at the server.
func (g *pairLab) tc(t *testing.T, command string) string {
	t.Helper()
	out, err := g.server.Command("tc", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tc %s: %v\n%s", command, err, out)
	}
	return string(out)
}

func (g *pairLab) detach(t *testing.T) {
	t.Helper()
	if err := g.server.Do(func() error { return g.engine.Detach(g.index) }); err != nil {
		t.Fatal(err)
	}
}

// byFilters attaches the engine again, by filters.
func (g *pairLab) byFilters(t *testing.T) {
	t.Helper()
	g.detach(t)
	g.engine.noTCX = true
	g.attach(t)
}

// TestFiltersLeaveNoTrace: detaching and removing take the queueing discipline away, too.
func TestFiltersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.detach(t)
	clean := g.tc(t, "qdisc show dev eth0")
	for _, c := range []struct {
		what string
		end  func() error
	}{ // Remove comes last: it takes the directory of the pins away
		{"Detach", func() error { return g.engine.Detach(g.index) }},
		{"Remove", func() error { return Remove(g.dir) }},
	} {
		what, end := c.what, c.end
		g.byFilters(t)
		if out := g.tc(t, "qdisc show dev eth0"); !strings.Contains(out, "clsact") {
			t.Errorf("no clsact: %s", out)
		}
		if err := g.server.Do(end); err != nil {
			t.Fatal(err)
		}
		if out := g.tc(t, "qdisc show dev eth0"); out != clean {
			t.Errorf("%s leaves\n%sbefore\n%s", what, out, clean)
		}
	}
}

// withoutNetAdmin runs f in a node's namespace without the capability to change the network.
func withoutNetAdmin(t *testing.T, n *nstest.Node, f func() error) (err error) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	must(n.Do(func() error {
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var have [2]unix.CapUserData
		must(unix.Capget(&h, &have[0]))
		less := have
		less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		must(unix.Capset(&h, &less[0]))
		err = f()
		return unix.Capset(&h, &have[0])
	}))
	return err
}

// TestFilterThatStays: a filter that cannot be deleted still has its rules, whether the removal of
// everything has failed or that of one interface, and the next removal finds it.
func TestFilterThatStays(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.detach(t)
	clean := g.tc(t, "qdisc show dev eth0")
	g.byFilters(t)
	detach := func() error { return g.engine.Detach(g.index) }
	if err := withoutNetAdmin(t, g.server, detach); err == nil {
		t.Error("the filters were detached without the capability")
	}
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	remove := func() error { return Remove(g.dir) }
	if err := withoutNetAdmin(t, g.server, remove); err == nil {
		t.Error("the filters were removed without the capability")
	}
	g.answers(t, "while the filters stay", "80")
	if err := g.server.Do(remove); err != nil {
		t.Fatal(err)
	}
	if out := g.tc(t, "qdisc show dev eth0"); out != clean {
		t.Errorf("there is\n%sbefore\n%s", out, clean)
	}
}

// TestFilterThatStaysIsDetachedLater: after a detach that failed, the engine still knows the
// filters of an interface: the next one takes them away, and an attach has all of it again.
func TestFilterThatStaysIsDetachedLater(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.detach(t)
	clean := g.tc(t, "qdisc show dev eth0")
	g.byFilters(t)
	detach := func() error { return g.engine.Detach(g.index) }
	for _, between := range []func(*testing.T){func(*testing.T) {}, g.attach} {
		if err := withoutNetAdmin(t, g.server, detach); err == nil {
			t.Error("the filters were detached without the capability")
		}
		between(t)
		g.detach(t)
		if out := g.tc(t, "qdisc show dev eth0"); out != clean {
			t.Errorf("there is\n%sbefore\n%s", out, clean)
		}
		if pins, err := pinned(g.engine.dir, "filter"); len(pins) > 0 || err != nil {
			t.Errorf("pins of %v, %v", pins, err)
		}
		g.attach(t)
	}
}

// TestFiltersLeaveOthersAlone: another program's filter stays, and so does the qdisc that it is in.
func TestFiltersLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.detach(t)
	g.tc(t, "qdisc add dev eth0 clsact")
	g.tc(t, "filter add dev eth0 ingress protocol all prio 7 u32 match u8 0 0 classid 1:1")
	g.byFilters(t)
	g.detach(t)
	if out := g.tc(t, "filter show dev eth0 ingress"); !strings.Contains(out, "u32") ||
		strings.Contains(out, "weir") {
		t.Errorf("filters: %s", out)
	}
}

// byFilters attaches the engine again, by filters.
func (v *cluster) byFilters() {
	v.t.Helper()
	all := v.engine.Attached()
	for _, index := range all {
		v.must(v.host.Do(func() error { return v.engine.Detach(index) }))
	}
	v.engine.noTCX = true
	for _, index := range all {
		v.must(v.host.Do(func() error { _, err := v.engine.Attach(index); return err }))
	}
}
