package members_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// TestRemovedAfterPutBack: a host that only follows loses its connection when it is removed, also
// if its store was put back meanwhile. The revision by which it was admitted is not there any more.
// One that the store does not have any more loses it at once, and others stay.
func TestRemovedAfterPutBack(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	b := f.join(t, "b")
	node, _ := f.value(t, cluster.NodeTree+"b")
	late := f.join(t, "late")
	// Now b is admitted by a later revision than the one that the store goes back to.
	last, err := f.model.Commit(t.Context(), put(node.Key, string(node.Value)))
	if err != nil {
		t.Fatal(err)
	}
	follow := map[string]*following{"b": follows(t, f.connect(t, b.Credential)),
		"late": follows(t, f.connect(t, late.Credential))}
	storetest.Eventually(t, "weir-store has what is taken back", func() bool {
		return follow["b"].at.Load() >= last && follow["late"].at.Load() >= last
	})
	f.model.Rewind(node.Revision)
	ends := func(name string) {
		t.Helper()
		select {
		case <-follow[name].ended:
		case <-time.After(testTimeout):
			t.Fatalf("%s follows for ever", name)
		}
	}
	ends("late")
	select {
	case err := <-follow["b"].ended:
		t.Errorf("b ended: %v", err)
	default:
	}
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Fatal(err)
	}
	ends("b")
}

// following is what a host has of the store: the revision, and errors that end a connection.
type following struct {
	at    atomic.Int64
	ended chan error
}

// follows has a host follow.
func follows(t *testing.T, host *client.Client) *following {
	f := &following{ended: make(chan error, 10)}
	go host.Follow(t.Context(), client.Follow{
		Copy: func() *store.Copy { return store.NewCopy(store.Snapshot{}) },
		Step: func(b store.Batch) error {
			f.at.Store(b.Revision)
			return nil
		},
		Failed: func(err error) { f.ended <- err },
	})
	return f
}
