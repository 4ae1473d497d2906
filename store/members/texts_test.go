package members_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// texts is a store with versions, and what sweeps it.
type texts struct {
	*founded
	t       *testing.T
	cleanup *members.TextCleanup
	now     time.Time
}

func newTexts(t *testing.T) *texts {
	x := &texts{founded: &founded{model: storetest.NewModel(time.Second)}, t: t,
		now: time.Unix(0, 0)}
	x.cleanup = &members.TextCleanup{Store: x.model, Now: func() time.Time { return x.now },
		Log: func(err error) { t.Error(err) },
		Keys: func(ctx context.Context, name string) ([]store.Entry, error) {
			all, err := x.model.Read(ctx, name, 0)
			return all.Entries, err
		}}
	return x
}

// text writes a text and returns its digest.
func (x *texts) text(n int) cluster.Digest {
	x.t.Helper()
	digest, parts, err := cluster.EncodeText(fmt.Sprintf("add %d allow ip from any to any\n", n))
	if err == nil {
		_, err = x.model.Commit(x.t.Context(), store.Txn{Put: parts})
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return digest
}

func (x *texts) has(digest cluster.Digest) bool {
	x.t.Helper()
	_, ok := x.value(x.t, fmt.Sprintf("%s%v/0000", cluster.TextTree, digest))
	return ok
}

func (x *texts) head(h cluster.Head) {
	x.t.Helper()
	value, err := cluster.Encode(&h)
	if err != nil {
		x.t.Fatal(err)
	}
	x.write(x.t, cluster.HeadKey, value)
}

func (x *texts) after(d time.Duration) {
	x.t.Helper()
	x.now = x.now.Add(d)
	if err := x.cleanup.DeleteUnused(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

func allOf(d cluster.Digest) map[cluster.Scope]cluster.Digest {
	return map[cluster.Scope]cluster.Digest{cluster.All: d}
}

// TestTexts: of the texts that no version names, the last 64 stay, whatever is loaded. Those of the
// version in force, of one on trial, and of one that it goes back to stay always.
func TestTexts(t *testing.T) {
	x := newTexts(t)
	x.after(0) // without a version
	inForce, onTrial := x.text(1), x.text(2)
	head := cluster.Head{Number: cluster.Number{Epoch: 1, Count: 1}, By: "a",
		Scopes: allOf(inForce)}
	head.Version = 1
	tried := head.Next(allOf(onTrial), "a", 30*time.Second)
	x.head(tried)
	var old []cluster.Digest
	for n := range 200 {
		old = append(old, x.text(100+n))
	}
	x.after(0)
	if !x.has(old[0]) {
		t.Error("a text is deleted before its version can follow")
	}
	x.after(time.Hour)
	kept := 0
	for _, d := range old {
		if x.has(d) {
			kept++
		}
	}
	if kept != 64 || !x.has(old[199]) || x.has(old[0]) {
		t.Errorf("%d old texts are kept, expected the last 64", kept)
	}
	if !x.has(inForce) || !x.has(onTrial) {
		t.Fatal("a text that is needed is deleted")
	}

	// The previous version is named until now: it outlives those that were not for longer.
	next := tried.Next(allOf(x.text(3)), "a", 0)
	x.head(next)
	x.after(time.Second)
	x.after(time.Hour)
	if !x.has(inForce) || !x.has(onTrial) {
		t.Error("the previous version is deleted, and older texts are not")
	}

	// One who loads an old text again, while it is about to be deleted, has it.
	late := x.text(4)
	x.after(0)
	for n := range 70 {
		x.text(500 + n)
	}
	x.after(textGraceLess)
	if again := x.text(4); again != late {
		t.Fatal("another text")
	}
	x.after(time.Minute)
	if !x.has(late) {
		t.Error("a text that was just written again is deleted")
	}
}

// textGraceLess is less than the time that a new text has.
const textGraceLess = 10*time.Minute - time.Second
