package members_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// TestReservedSpace: before the database is full, hosts add nothing to it, then administrators
// nothing but versions, and then nothing. What is gone can be said until it is full. Removals have
// the space beyond that.
func TestReservedSpace(t *testing.T) {
	f := found(t)
	b := f.connect(t, f.join(t, "b").Credential)
	admin := f.connect(t, f.admin)
	pods, text := cluster.PodsTree+"b/0000", cluster.TextTree+"00/0000"
	table := cluster.TableTree + "web/00"
	for _, step := range []struct {
		full       int
		by         store.Store
		key, value string
		refused    bool
	}{
		{79, b, pods, "two pods", false},
		{80, b, pods, "two other pods", true},
		{80, b, cluster.PodsTree + "b/0001", "new", true},
		{80, b, pods, "one pod", false},
		{80, b, pods, "", false},
		{80, b, cluster.ReportTree + "b", "enforced", false},
		{80, admin, text, "rules", false},
		{80, admin, table, "member", false},
		{90, b, cluster.EndpointKey + "b", "here", true},
		{90, admin, text, "rules", true},
		{90, admin, table, "members", true},
		{90, admin, table, "none", false},
		{90, admin, cluster.HeadKey, "version", false},
		{95, admin, cluster.HeadKey, "next version", true},
		{95, admin, cluster.KeysKey, "keys", true},
		{99, admin, cluster.HeadKey, "before", false},
		{99, admin, cluster.RemovedTree + "table/old", "record", false},
		{100, admin, cluster.RemovedTree + "table/web", "record", true},
		{100, admin, cluster.HeadKey, "", true},
		{100, b, cluster.ReportTree + "b", "", true},
	} {
		f.full.Store(int64(step.full))
		commit := func() error {
			_, err := step.by.Commit(t.Context(), put(step.key, step.value))
			return err
		}
		if step.refused {
			if err := commit(); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%d %% full, %s = %q: %v", step.full, step.key, step.value, err)
			}
			continue
		}
		// The copy of weir-store, which says what is longer, may be late.
		storetest.Eventually(t, fmt.Sprintf("%d %% full, %s = %q", step.full, step.key,
			step.value), func() bool { return commit() == nil })
	}
	f.full.Store(95)
	token := f.invite(t, members.Invitation{})
	if _, err := f.joining(t, token, "c").Do(t.Context()); err == nil {
		t.Error("a host joins")
	}
	f.full.Store(100)
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Error(err)
	}
	storetest.Eventually(t, "the client knows how full it is", func() bool {
		return admin.State().PercentFull == 100
	})
}
