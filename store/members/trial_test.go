package members_test

import (
	"testing"
	"time"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// TestTrials: a version that is not confirmed is taken back after its trial and ten seconds, by the
// process's own timer, and one that is confirmed stays.
func TestTrials(t *testing.T) {
	f := &founded{model: storetest.NewModel(time.Second)}
	now, reverted := time.Unix(0, 0), 0
	x := &members.TrialExpiry{Store: f.model, Now: func() time.Time { return now },
		Log: func(error) { reverted++ }}
	load := func(h cluster.Head) {
		t.Helper()
		value, err := cluster.Encode(&h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.model.Commit(t.Context(), put(cluster.HeadKey, string(value))); err != nil {
			t.Fatal(err)
		}
	}
	check := func() cluster.Head {
		t.Helper()
		if err := x.RevertExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, _ := f.value(t, cluster.HeadKey)
		head, err := cluster.Decode[cluster.Head](e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	if err := x.RevertExpired(t.Context()); err != nil {
		t.Errorf("without a version: %v", err)
	}
	first := cluster.Head{Number: cluster.Number{Epoch: 1, Count: 1}, By: "a"}
	load(first)
	scopes := map[cluster.Scope]cluster.Digest{cluster.All: {1}}
	first.Version = 1
	tried := first.Next(scopes, "a", 30*time.Second)
	load(tried)
	check()
	now = now.Add(39 * time.Second)
	if check().Number != tried.Number || reverted != 0 {
		t.Error("taken back early")
	}
	now = now.Add(time.Second)
	if got := check(); got.Number != tried.Trial.Revert.Number || len(got.Scopes) != 0 ||
		reverted != 1 {
		t.Errorf("version %v, taken back %d times", got.Number, reverted)
	}
	again := tried.Trial.Revert.Next(scopes, "a", 30*time.Second)
	load(again)
	check()
	confirmed, err := again.Confirmed("a")
	if err != nil {
		t.Fatal(err)
	}
	load(confirmed)
	now = now.Add(time.Hour)
	if check().Number != confirmed.Number {
		t.Error("a confirmed version was taken back")
	}
}
