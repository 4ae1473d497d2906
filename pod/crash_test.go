package pod

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// errCrash ends an attach or a detach as the end of the process would.
var errCrash = errors.New("crash")

// crash calls f and ends it at a step, without any cleanup. It returns the steps that f reached.
func (b *fixture) crash(at int, f func() error) (steps []string) {
	b.t.Helper()
	b.m.step = func(name string) {
		if steps = append(steps, name); len(steps)-1 == at {
			panic(errCrash)
		}
	}
	defer func() {
		if r := recover(); r != nil && r != any(errCrash) {
			panic(r)
		}
		b.m.step = func(string) {}
	}()
	if err := b.do(f); err != nil {
		b.t.Fatal(err)
	}
	return steps
}

// TestCrashAtEachStep: a process that ends at any step of an attach or a detach leaves nothing that
// the next one does not remove. Each OnAttach is followed by an OnDetach unless the pod is in the
// list.
func TestCrashAtEachStep(t *testing.T) {
	b := newFixture(t)
	labels := map[string]bool{} // as the kernel's tables: they outlive the process
	owner := func(c *Config) {
		c.OnAttach = func(p Pod) error { labels[p.Key] = true; return nil }
		c.OnDetach = func(p Pod) error { delete(labels, p.Key); return nil }
	}
	owner(&b.m.config)
	stays, node := b.attach("stays", Spec{})
	spec := Spec{Container: "one", Name: "web", Labels: map[string]string{"app": "web"},
		Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}}
	before := b.traces()
	for _, what := range []string{"attach", "detach"} {
		for at := 0; ; at++ {
			spec.Netns = b.lab.Node(fmt.Sprint(what, at)).Path()
			var steps []string
			if what == "attach" {
				steps = b.crash(at, func() error {
					_, _, err := b.m.Attach(t.Context(), spec)
					return err
				})
			} else {
				if _, _, err := b.try(spec); err != nil {
					t.Fatal(err)
				}
				steps = b.crash(at, func() error { return b.m.Detach(t.Context(), "one", "") })
			}
			done := at >= len(steps)
			where := fmt.Sprint(what, " ", at, ": ", steps)
			clear(labels) // the owner begins with what the list says
			b.restart(owner)
			whole := len(b.m.List()) == 2
			if want := what == "attach" &&
				(done || steps[at] == "attach: publish" ||
					steps[at] == "attach: done"); whole != want && what == "attach" {
				t.Errorf("%s: the pod is there: %v, want %v", where, whole, want)
			}
			if whole { // complete, or not begun to go
				if !labels["one/eth0"] {
					t.Errorf("%s: the pod lost its labels", where)
				}
				if err := b.m.Detach(t.Context(), "one", ""); err != nil {
					t.Error(err)
				}
			}
			if now := b.traces(); !slices.Equal(now, before) || len(b.fast.published) != 0 {
				t.Errorf("%s: left %v, published %v; before %v", where, now, b.fast.published,
					before)
			}
			if !maps.Equal(labels, map[string]bool{"stays/eth0": true}) {
				t.Errorf("%s: labels of %v", where, labels)
			}
			if used := len(b.m.pools[0].used); used != 1 {
				t.Errorf("%s: %d addresses in use", where, used)
			}
			if done {
				break
			}
		}
	}
	if err := b.ping(node, stays.Gateway[0]); err != nil {
		t.Error(err)
	}
}

// restart opens a new Manager, as the next process after a crash does.
func (b *fixture) restart(more func(*Config)) {
	b.t.Helper()
	b.m.conn.Close() // a Manager whose calls never end cannot be waited for
	b.start(more)
}
