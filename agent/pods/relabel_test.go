package pods

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/pod"
)

// TestRelabelled: a pod that changes its labels is in the tables of the new ones and in no other.
// It is never in none of both, and the other parts hear of it.
func TestRelabelled(t *testing.T) {
	changed := 0
	s := &tableStore{tables: map[string]map[netip.Prefix]bool{}}
	l := newLabels(s, func() { changed++ })
	before := labelled("p", "10.88.0.2", "a", "kept")
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	if err := l.attached(before); err != nil {
		t.Fatal(err)
	}
	watched := &watchedTableStore{tableStore: s}
	l.engine = watched
	after := labelled("p", "10.88.0.2", "b", "kept")
	if err := l.relabelled(before, after); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{"a=x": "[]", "b=x": "[10.88.0.2/32]",
		"kept=x": "[10.88.0.2/32]"} {
		if got := s.members(table); got != want {
			t.Errorf("%s has %s, want %s", table, got, want)
		}
	}
	if watched.neither {
		t.Error("for a moment the pod was in neither table")
	}
	if changed != 2 || !maps.Equal(l.own["p"].Labels, after.Labels) {
		t.Errorf("%d changes, own labels %v", changed, l.own["p"].Labels)
	}
}

// watchedTableStore notes whether a call leaves an address in neither of two tables.
type watchedTableStore struct {
	*tableStore
	neither bool
}

func (s *watchedTableStore) DeleteTable(name string, p netip.Prefix) error {
	err := s.tableStore.DeleteTable(name, p)
	s.neither = s.neither || !s.tables["a=x"][p] && !s.tables["b=x"][p]
	return err
}

// TestRelabelledFails: whichever calls the engine refuses, after an error the pod has the labels
// from before. Once it has gone no table has it, whatever it was to have meanwhile.
func TestRelabelledFails(t *testing.T) {
	for first := 1; first < 12; first++ {
		for more := range 8 {
			// how many calls in a row, and whether it changes again before it goes
			changes := more%2 == 0
			more /= 2
			s := &tableStore{tables: map[string]map[netip.Prefix]bool{}}
			l := newLabels(s, func() {})
			if err := l.begin(); err != nil {
				t.Fatal(err)
			}
			before := labelled("p", "10.88.0.2", "a", "b")
			after := labelled("p", "10.88.0.2", "c", "d")
			if err := l.attached(before); err != nil {
				t.Fatal(err)
			}
			s.refuses, s.until = s.calls+first, s.calls+first+more
			has := before
			if err := l.relabelled(before, after); err == nil {
				has = after
			}
			s.refuses, s.until = s.calls+1000, 0
			if more == 0 { // a single failure: all is as before, or as it is to be
				s.expect(t, has, "after one failure")
			}
			if changes {
				has = again(t, &l, has)
				s.expect(t, has, "after another change")
			}
			if err := l.detached(has); err != nil {
				t.Fatal(err)
			}
			for table := range s.tables {
				if got := s.members(table); got != "[]" {
					t.Errorf("calls %d to %d: %s has %s", first, first+more, table, got)
				}
			}
			if len(l.strays) > 0 {
				t.Errorf("calls %d to %d: strays %v", first, first+more, l.strays)
			}
		}
	}
}

// again changes the labels of a pod once more, in an engine that works.
func again(t *testing.T, l *labels, has pod.Pod) pod.Pod {
	t.Helper()
	next := labelled("p", "10.88.0.2", "e")
	if err := l.relabelled(has, next); err != nil {
		t.Fatal(err)
	}
	return next
}

// expect compares the tables with the labels of the pod.
func (s *tableStore) expect(t *testing.T, p pod.Pod, when string) {
	t.Helper()
	var in []string
	for table, members := range s.tables {
		if len(members) > 0 {
			in = append(in, table)
		}
	}
	slices.Sort(in)
	if want := slices.Sorted(slices.Values(tablesOf(p.Labels))); !slices.Equal(in, want) {
		t.Errorf("calls %d to %d refused, %s: the pod is in %v, want %v", s.refuses, s.until, when,
			in, want)
	}
}
