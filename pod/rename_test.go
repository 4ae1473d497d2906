package pod

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestRenamedHostEnd: a pod whose host end is renamed stays the pod that it was, also for the
// next process, can be attached again, and goes whole.
func TestRenamedHostEnd(t *testing.T) {
	b := newFixture(t)
	p, node := b.attach("one", Spec{})
	before := b.traces()
	rename := func(name string) {
		t.Helper()
		if err := b.host.Netlink().RenameLink(int(p.Index), name); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(when string) {
		t.Helper()
		if err := b.m.Sweep(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		again, made, err := b.try(Spec{Container: "one", Netns: node.Path()})
		if err != nil || made || again.Index != p.Index {
			t.Errorf("%s: attached again: made %v, index %d, %v", when, made, again.Index, err)
		}
		if err := b.do(func() error { return b.m.Check("one", "", nil) }); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if e := b.fast.endpoints[p.Index]; len(b.m.List()) != 1 || e.Name != "pod:one" {
			t.Errorf("%s: pods %+v, endpoint %+v", when, b.m.List(), e)
		}
	}
	rename("renamed")
	whole("renamed")
	b.m.Close()
	b.start()
	whole("in the next process")
	rename("again")
	if err := b.m.Detach(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	if left := b.traces(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	p, node = b.attach("one", Spec{})
	if now := b.traces(); len(now) != len(before) || !slices.Contains(now, "link "+p.HostIf) {
		t.Errorf("attached another time: %v, before %v", now, before)
	}
	rename("renamed")
	b.m.Close()
	if err := b.do(func() error { return Remove(filepath.Join(b.dir, "pods")) }); err != nil {
		t.Error(err)
	}
	if links := b.traces(); slices.Contains(links, "link renamed") {
		t.Errorf("Remove left: %v", links)
	}
}

// TestRecordedIndexOfAnotherLink: after a reboot the index of a record may be another interface's,
// even one with the name of the host end. That stays.
func TestRecordedIndexOfAnotherLink(t *testing.T) {
	b := newFixture(t)
	p, _ := b.attach("one", Spec{})
	b.m.Close()
	if err := b.host.Netlink().SetLinkAlias(int(p.Index), "another program's"); err != nil {
		t.Fatal(err)
	}
	b.start()
	if list := b.m.List(); len(list) != 0 {
		t.Errorf("the pod is there: %+v", list)
	}
	if l, err := b.host.Netlink().LinkByName(p.HostIf); err != nil || l.Index != int(p.Index) {
		t.Errorf("the interface is gone: %v", err)
	}
}
