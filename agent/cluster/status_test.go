package cluster

import (
	"testing"

	"github.com/weirnet/weir/store"
)

// TestStatusSaysWhy: the status of a host that has no connection to the store says why, for
// instance that the versions of Weir differ.
func TestStatusSaysWhy(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	a.client.away(true)
	if s := a.Status(); s.Connected || s.StoreError != store.ErrUnavailable.Error() {
		t.Errorf("without the store: %+v", s)
	}
	a.client.away(false)
	if s := a.Status(); !s.Connected || s.StoreError != "" {
		t.Errorf("with the store: %+v", s)
	}
}
