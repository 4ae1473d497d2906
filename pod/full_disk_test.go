package pod

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk puts the records on a file system of their own and returns what fills it, and what
// makes space again.
func (b *fixture) smallDisk() (fill, clear func()) {
	b.t.Helper()
	dir := filepath.Join(b.dir, "pods")
	b.m.Close()
	if err := unix.Mount("weir-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	b.start()
	file := filepath.Join(b.dir, "pods", "filler")
	fill = func() {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if !errors.Is(err, unix.ENOSPC) {
			b.t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	return fill, func() {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			b.t.Fatal(err)
		}
	}
}

// TestFullDisk: the disk is full from any step of an attach, a change of labels or a detach on.
// What cannot be recorded fails and changes nothing, and a pod can always go.
func TestFullDisk(t *testing.T) {
	b := newFixture(t)
	fill, clear := b.smallDisk()
	labels := map[string]map[string]string{}
	b.m.config.OnAttach = func(p Pod) error { labels[p.Key] = p.Labels; return nil }
	b.m.config.OnLabel = func(_, p Pod) error { labels[p.Key] = p.Labels; return nil }
	b.m.config.OnDetach = func(p Pod) error { delete(labels, p.Key); return nil }
	spec := Spec{Container: "one", Labels: map[string]string{"app": "web"},
		Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}}
	for at := 0; ; at++ {
		spec.Netns = b.lab.Node(fmt.Sprint("n", at)).Path()
		var steps []string
		b.m.step = func(name string) {
			if steps = append(steps, name); len(steps)-1 == at {
				fill()
			}
		}
		_, _, attached := b.try(spec)
		_, labelled := b.m.Label(t.Context(), "one", "", map[string]string{"app": "db"}, nil)
		where := fmt.Sprint("full from step ", at, " of ", steps)
		list := b.m.List()
		if whole := len(list) == 1; whole != (attached == nil) || attached != nil &&
			!errors.Is(attached, unix.ENOSPC) {
			t.Errorf("%s: %v, pods %+v", where, attached, list)
		} else if whole && (labelled == nil) != (labels["one/eth0"]["app"] == "db") ||
			whole && labels["one/eth0"]["app"] != list[0].Labels["app"] {
			t.Errorf("%s: labels %v of %+v, %v", where, labels, list[0], labelled)
		}
		if err := b.m.Detach(t.Context(), "one", ""); err != nil {
			t.Errorf("%s: detach: %v", where, err)
		}
		clear()
		if left := b.traces(); len(left)+len(labels)+len(b.fast.published)+
			len(b.m.pools[0].used) != 0 {
			t.Errorf("%s: left %v, labels %v, ports %v, addresses %v", where, left, labels,
				b.fast.published, b.m.pools[0].used)
		}
		if at >= len(steps) {
			break
		}
		if at == 0 && attached == nil {
			t.Errorf("%s: the disk was not full", where)
		}
	}
}

// TestDamagedRecordOnAFullDisk: the new record of a pod whose record is damaged does not fit on the
// disk. The pod is still there after the next start: a pod without any record would be removed.
func TestDamagedRecordOnAFullDisk(t *testing.T) {
	b := newFixture(t)
	fill, clear := b.smallDisk()
	p, _ := b.attach("web", Spec{})
	if err := os.Truncate(b.m.store.path(p.Key), 10); err != nil {
		t.Fatal(err)
	}
	for _, full := range []bool{true, true, false} {
		if full {
			fill()
		}
		b.restart(func(*Config) {})
		clear()
		if list := b.m.List(); len(list) != 1 || list[0].Index != p.Index {
			t.Fatalf("full %v: the pods are %v", full, list)
		}
	}
	if aside, err := filepath.Glob(b.m.store.path(p.Key) + ".*"); len(aside) != 1 || err != nil {
		t.Errorf("set aside are %q, %v", aside, err)
	}
	if err := b.do(func() error { return b.m.Detach(t.Context(), "web", "") }); err != nil {
		t.Fatal(err)
	}
	if left := b.traces(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
