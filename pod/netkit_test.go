package pod

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nl"
)

// TestNetkitPod: a pod gets a netkit where the settings ask for it and the kernel has it. Where it
// does not, the pod is refused with what to do, and nothing is left. Pods that are there keep their
// pair whatever the settings say.
func TestNetkitPod(t *testing.T) {
	b := newFixture(t)
	veth, c1 := b.attach("one", Spec{})
	wants := func(kind string) func(*Config) { return func(c *Config) { c.Link = kind } }
	b.m.Close()
	b.start(wants(LinkNetkit))
	before := b.traces()
	spec := Spec{Container: "two", Netns: b.lab.Node("two").Path()}
	err := b.do(func() error {
		_, _, err := b.m.Attach(t.Context(), spec)
		return err
	})
	if errors.Is(err, nl.ErrNoNetkit) {
		var h interface{ Hint() string }
		if !errors.As(err, &h) || !strings.Contains(h.Hint(), `link = "veth"`) {
			t.Errorf("%v does not say what to do", err)
		}
		if after := b.traces(); len(after) != len(before) {
			t.Errorf("before %v, after %v", before, after)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	b.m.Close()
	b.start(wants(LinkVeth))
	netkit, err := b.m.Find("two", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		pod  Pod
		kind string
	}{{veth, LinkVeth}, {netkit, LinkNetkit}} {
		if got := b.fast.endpoints[p.pod.Index]; got.Netkit != (p.kind == LinkNetkit) ||
			len(got.Addrs) != 2 {
			t.Errorf("the engine knows %s as %+v", p.pod.Name, got)
		}
		l, ours, err := hostEnd(b.m.conn, &p.pod)
		if err != nil || !ours || l.Kind != p.kind || l.Alias != aliasOf(&p.pod) {
			t.Errorf("%s: %+v, %v, %v", p.pod.Name, l, ours, err)
		}
		if err := b.m.Check(p.pod.Container, "", nil); err != nil {
			t.Error(err)
		}
		for _, a := range p.pod.Addrs {
			if err := b.ping(b.host, a); err != nil {
				t.Error(err)
			}
		}
	}
	for _, a := range []netip.Addr{netkit.Addrs[0], netkit.Addrs[1]} {
		if err := b.ping(c1, a); err != nil {
			t.Errorf("from the pod with a veth: %v", err)
		}
	}
	for _, name := range []string{"one", "two"} {
		if err := b.m.Detach(t.Context(), name, ""); err != nil {
			t.Error(err)
		}
	}
	if left := b.traces(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
