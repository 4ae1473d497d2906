package cluster

import (
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/observe"
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
