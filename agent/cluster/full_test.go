package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"

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
	a := l.start("a", t.TempDir(), 1, newParts(), false)
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
	l.join("b", 2, "10.0.2.0/24")
	nstest.Eventually(t, "the problem is over", func() bool { return !a.hasProblem("at most 256") })
}
