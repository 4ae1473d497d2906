package storetest

import (
	"testing"
	"time"

	"github.com/weirnet/weir/store"
)

// modelCluster makes the suite's faults in a Model.
type modelCluster struct{ model *Model }

func (c modelCluster) Open(_ *testing.T, grants []store.Grant) store.Store {
	if grants == nil {
		return c.model
	}
	return store.Limit(c.model, grants)
}

func (c modelCluster) Compact(_ *testing.T, revision int64) { c.model.Compact(revision) }
func (c modelCluster) Restart(*testing.T)                   { c.model.Restart() }
func (c modelCluster) Partition(_ *testing.T, cut bool)     { c.model.Partition(cut) }
func (c modelCluster) Empty(*testing.T)                     { c.model.Rewind(0) }

func (c modelCluster) Silence() time.Duration { return c.model.silence }

func TestModel(t *testing.T) {
	Run(t, func(*testing.T) Cluster { return modelCluster{NewModel(100 * time.Millisecond)} })
}
