package members_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// TestRestoreWithoutIdentity: a backup of a store in which a thief has replaced the identity of the
// cluster can be restored: the store host knows it without the store.
func TestRestoreWithoutIdentity(t *testing.T) {
	f := full(t)
	f.write(t, cluster.IdentityKey, []byte("garbage"))
	entries := (&locked{founded: f}).backup(t)
	if _, err := members.PrepareRestore(entries, members.PriorState{}, nil); err == nil {
		t.Error("restored by a host that knows nothing of the cluster")
	}
	own := f.id
	own.Epoch = 0
	for known, want := range map[uint64]uint64{0: 2, 6: 7} {
		r, err := members.PrepareRestore(entries, members.PriorState{Epoch: known, Identity: own},
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Replaced) != 1 || !strings.Contains(r.Replaced[0], cluster.IdentityKey) {
			t.Errorf("replaced: %q", r.Replaced)
		}
		s := storetest.NewModel(time.Second)
		if err := r.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		e, _ := (&founded{model: s}).value(t, cluster.IdentityKey)
		doc, err := cluster.Decode[cluster.Identity](e.Value)
		if err != nil || doc.ID != f.id.ID || doc.Epoch != want || len(doc.Stores) != 1 {
			t.Errorf("the cluster is %+v, %v; want epoch %d", doc, err, want)
		}
	}
}
