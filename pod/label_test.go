package pod

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// labelsOf are those of a pod in the list.
func (b *fixture) labelsOf(key string) map[string]string {
	b.t.Helper()
	for _, p := range b.m.List() {
		if p.Key == key {
			return p.Labels
		}
	}
	b.t.Fatalf("there is no pod %s", key)
	return nil
}

// labelTables are the labels of each pod as the tables have them.
type labelTables struct {
	t      *testing.T
	owner  map[string]map[string]string
	refuse string // this pod, at its next change
}

// enter has a Manager keep the tables.
func (l *labelTables) enter(c *Config) {
	c.OnAttach = func(p Pod) error { l.owner[p.Key] = p.Labels; return nil }
	c.OnLabel = func(before, after Pod) error {
		if !maps.Equal(l.owner[before.Key], before.Labels) {
			l.t.Errorf("%s had %v, not %v", before.Key, l.owner[before.Key], before.Labels)
		}
		if l.refuse == before.Key {
			l.refuse = ""
			return errors.New("no space")
		}
		l.owner[after.Key] = after.Labels
		return nil
	}
}

// TestLabel: the labels of a running container change for all its interfaces, or for none, and
// those of the network's configuration do not.
func TestLabel(t *testing.T) {
	b := newFixture(t)
	tables := &labelTables{t: t, owner: map[string]map[string]string{}}
	b.m.Close()
	b.start(tables.enter)
	spec := Spec{Name: "web", Network: "net", Fixed: []string{"zone"},
		Labels: map[string]string{"zone": "red", "app": "web"}}
	b.attach("one", spec)
	spec.IfName = "eth1"
	b.attach("one", spec)
	label := func(set map[string]string, remove ...string) error {
		return b.do(func() error {
			after, err := b.m.Label(t.Context(), "web", "", set, remove)
			if err == nil && len(after) != 2 {
				t.Errorf("%d pods were changed", len(after))
			}
			return err
		})
	}
	expect := func(when string, want map[string]string) {
		t.Helper()
		for _, key := range []string{"one/eth0", "one/eth1"} {
			if has := b.labelsOf(key); !maps.Equal(has, want) ||
				!maps.Equal(tables.owner[key], want) {
				t.Errorf("%s: %s has %v, its tables say %v; want %v", when, key, has,
					tables.owner[key], want)
			}
		}
	}
	old := map[string]string{"zone": "red", "app": "web"}
	now := map[string]string{"zone": "red", "app": "db", "tier": "1"}
	many := map[string]string{}
	for i := range maxLabels {
		many[fmt.Sprint("k", i)] = "v"
	}
	for _, c := range []struct {
		set    map[string]string
		remove []string
		want   string
	}{
		{map[string]string{"zone": "green"}, nil,
			"label zone=red is of the configuration of net"},
		{nil, []string{"zone"}, "the label zone=red is of the configuration of net"},
		{map[string]string{"a b": "c"}, nil, "only letters"},
		{map[string]string{"key": strings.Repeat("v", 60)}, nil,
			"longer than 63 bytes"},
		{many, nil, "at most 32"},
	} {
		if err := label(c.set, c.remove...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %q: %v", c.set, c.remove, err)
		}
	}
	expect("after what was refused", old)
	tables.refuse = "one/eth1"
	if err := label(map[string]string{"app": "db"}); err == nil {
		t.Error("the second interface was refused, and the change was not")
	}
	expect("after a change that failed half way", old)
	change := map[string]string{"app": "db", "tier": "1", "zone": "red"}
	if err := label(change, "none"); err != nil {
		t.Error(err)
	}
	expect("after the change", now)
	b.restart(tables.enter)
	expect("after a restart", now)
	if _, err := b.m.Label(t.Context(), "none", "", nil, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pod that there is not: %v", err)
	}
}

// TestLabelCrash: a process that ends at any step of a change leaves the labels of before or after
// it, the same in the list and in the tables.
func TestLabelCrash(t *testing.T) {
	b := newFixture(t)
	tables := map[string]string{}
	enter := func(c *Config) {
		c.OnAttach = func(p Pod) error { tables[p.Key] = p.Labels["app"]; return nil }
		c.OnLabel = func(_, p Pod) error { tables[p.Key] = p.Labels["app"]; return nil }
	}
	b.m.Close()
	b.start(enter)
	b.attach("one", Spec{Labels: map[string]string{"app": "0"}})
	for at, want := range []string{"0", "0", "0", "0", "5", "6", "7"} {
		value := fmt.Sprint(at + 1)
		steps := b.crash(at, func() error {
			_, err := b.m.Label(t.Context(), "one", "", map[string]string{"app": value}, nil)
			return err
		})
		b.restart(enter)
		if has := b.labelsOf("one/eth0")["app"]; has != want || tables["one/eth0"] != want {
			t.Errorf("after %v: the list has %s, the tables %s, want %s", steps, has,
				tables["one/eth0"], want)
		}
	}
}

// TestLabelCrashOfSeveral: as TestLabelCrash, for a container with two interfaces: both have the
// labels of before or both those of after. So say the records before a Manager takes them over.
func TestLabelCrashOfSeveral(t *testing.T) {
	b := newFixture(t)
	b.attach("one", Spec{Labels: map[string]string{"app": "0"}})
	b.attach("one", Spec{IfName: "eth1", Labels: map[string]string{"app": "0"}})
	dir := filepath.Join(b.dir, "pods")
	find := func(uint32, string, func(string) bool) uint32 { return 1 }
	for at, want := range []string{"0", "0", "0", "3", "4", "5", "6", "7"} {
		value := fmt.Sprint(at)
		steps := b.crash(at, func() error {
			_, err := b.m.Label(t.Context(), "one", "", map[string]string{"app": value}, nil)
			return err
		})
		recorded, err := ReadRecords(dir, find, nil)
		if len(recorded) != 2 || err != nil {
			t.Fatalf("after %v: recorded are %v, %v", steps, recorded, err)
		}
		for _, p := range recorded {
			if p.Labels["app"] != want {
				t.Errorf("after %v: the record of %s has %s, want %s", steps, p.Key,
					p.Labels["app"], want)
			}
		}
		b.restart(func(*Config) {})
		for _, key := range []string{"one/eth0", "one/eth1"} {
			if has := b.labelsOf(key)["app"]; has != want {
				t.Errorf("after %v: %s has %s, want %s", steps, key, has, want)
			}
		}
		if left, err := os.ReadDir(dir); len(left) != 3 || err != nil { // two, and the gateways
			t.Errorf("after %v: left %v, %v", steps, left, err)
		}
	}
}

// TestLabelRefusedOnAFullDisk: the tables refuse the labels of one interface while the disk is
// full. After a restart no interface of the container has them.
func TestLabelRefusedOnAFullDisk(t *testing.T) {
	b := newFixture(t)
	fill, clear := b.smallDisk()
	b.attach("one", Spec{Labels: map[string]string{"app": "web"}})
	b.attach("one", Spec{IfName: "eth1", Labels: map[string]string{"app": "web"}})
	b.m.config.OnLabel = func(before, after Pod) error {
		fill()
		if before.IfName == "eth1" && after.Labels["app"] == "db" {
			return errors.New("no space")
		}
		return nil
	}
	app := map[string]string{"app": "db"}
	if _, err := b.m.Label(t.Context(), "one", "", app, nil); err == nil {
		t.Error("the labels were not refused")
	}
	clear()
	b.restart(func(*Config) {})
	for _, key := range []string{"one/eth0", "one/eth1"} {
		if has := b.labelsOf(key); has["app"] != "web" {
			t.Errorf("after a restart %s has %v", key, has)
		}
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, "pods", ".*")); len(left) > 0 || err != nil {
		t.Errorf("left: %q, %v", left, err)
	}
}
