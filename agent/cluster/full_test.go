package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// TestNearlyFullStore: status and metrics say how full the database of the store is, and there is a
// problem before the store refuses something.
func TestNearlyFullStore(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	if got := a.Status().StorePercent; got != 0 {
		t.Errorf("%d %% full, and nothing said so", got)
	}
	a.client.full.Store(71)
	nstest.Eventually(t, "there is a problem", func() bool { return a.hasProblem("71 % full") })
	metrics, err := a.Metrics()
	if err != nil || a.Status().StorePercent != 71 || !slices.ContainsFunc(metrics,
		func(m observe.Metric) bool {
			return m.Name == "weir_store_full_ratio" && m.Samples[0].Value == 0.71
		}) {
		t.Errorf("%v, %v: %v", a.Status(), err, metrics)
	}
	a.client.full.Store(40)
	nstest.Eventually(t, "the problem is over", func() bool { return !a.hasProblem("% full") })
}

// TestLargeStore: a step with which the copy would fill the memory is refused, counted, and a
// problem until the store is followed again.
func TestLargeStore(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), true) // only its client calls fits otherwise
	var b store.Batch
	value := make([]byte, 1<<20) // one for all
	for i := range store.MaxCopy / len(value) {
		b.Changes = append(b.Changes, store.Change{Entry: store.Entry{
			Key: fmt.Sprint(cluster.TableTree, "t/", i), Value: value}})
	}
	err := a.fits(b)
	var large *store.LargeError
	if !errors.As(err, &large) {
		t.Fatal(err)
	}
	a.failed(err)
	if !a.hasProblem("at most 256 are possible") {
		t.Error("there is no problem")
	}
	metrics, err := a.Metrics()
	if err != nil || !slices.ContainsFunc(metrics, func(m observe.Metric) bool {
		return m.Name == "weir_store_refused_steps_total" && m.Samples[0].Value == 1
	}) {
		t.Errorf("%v: %v", err, metrics)
	}
	if err := a.fits(store.Batch{Changes: b.Changes[:100]}); err != nil {
		t.Error(err)
	}
	a.client.away(false)
	nstest.Eventually(t, "the problem is over", func() bool { return !a.hasProblem("at most 256") })
}

// TestLargeStoreIsReplaced: an attacker in the store has filled it, and a backup is restored. A
// host has no space to hold what the backup does not have, so it does not follow that. An
// administrator may accept it.
func TestLargeStoreIsReplaced(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	dir := t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	key := func(i int) string { return fmt.Sprint(cluster.TableTree, "t/", i) }
	const size, many = 10000, 20
	var full, restored store.Txn
	for i := range many {
		full.Put = append(full.Put, store.Entry{Key: key(i), Value: make([]byte, size)})
		restored.Delete = append(restored.Delete, key(i))
	}
	restored.Put = []store.Entry{{Key: key(many), Value: make([]byte, size)}}
	l.commit(full)
	nstest.Eventually(t, "the host has it all", func() bool { return a.has(key(many - 1)) })
	a.client.away(true)
	a.mu.Lock()
	a.maxCopy = many*size + size/2 + a.guarded.Stored().Len()*100
	a.mu.Unlock()
	l.commit(restored)
	a.client.away(false)
	nstest.Eventually(t, "there is a problem", func() bool {
		return slices.ContainsFunc(a.config.Problems.All(), func(p api.Problem) bool {
			return strings.Contains(p.Advice, "weir cluster accept")
		})
	})
	if done, err := a.Accept(); err != nil {
		t.Fatal(done, err)
	}
	nstest.Eventually(t, "the store is followed", func() bool { return a.has(key(many)) })
	if a.hasProblem("are possible") || a.heldNow() > 0 {
		t.Errorf("%d removals are held", a.heldNow())
	}
	l.commit(full)
	nstest.Eventually(t, "what was accepted was one step", func() bool {
		return a.hasProblem("are possible") && !a.has(key(0))
	})
	a.stop()
	if a = l.start("a", dir, 1, newParts(), true); a.heldNow() > 0 || !a.has(key(many)) {
		t.Errorf("after a start %d removals are held", a.heldNow())
	}
}

// has reports whether the copy has a key.
func (r *running) has(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, has := r.guarded.Stored().Get(key)
	return has
}

// heldNow returns how many removals are held.
func (r *running) heldNow() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.guarded.Held())
}
