package cluster

import (
	"testing"

	"github.com/weirnet/weir/store"
)

func change(key, value string) store.Change {
	return store.Change{Entry: store.Entry{Key: key, Value: []byte(value)}}
}

// TestOwn: what the store has of a host is what its copy has and its own transactions that are
// newer, unless the store was put back.
func TestOwn(t *testing.T) {
	commit := func(o *own, value string, revision, copied int64, putBack int) {
		o.committed([]store.Entry{{Key: "p", Value: []byte(value)}}, revision, copied, putBack)
	}
	want := func(o *own, value string) {
		t.Helper()
		if got := string(o.value("p")); got != value || string(o.values()["p"]) != value {
			t.Errorf("the store has %q, not %q", got, value)
		}
	}
	o := newOwn()
	o.step([]store.Change{change("p", "1")}, 5, false)
	want(&o, "1")
	commit(&o, "2", 7, 5, 0)
	want(&o, "2")
	if o.step(nil, 6, false) {
		t.Error("a step of others differs")
	}
	if o.step([]store.Change{change("p", "2")}, 7, false) {
		t.Error("the own transaction differs")
	}
	want(&o, "2")

	commit(&o, "3", 9, 7, 0) // the store is put back before the copy has it
	if !o.step(nil, 7, true) {
		t.Error("a store that was put back does not differ")
	}
	want(&o, "2")
	commit(&o, "3", 9, 7, 0) // its answer comes late
	want(&o, "2")

	commit(&o, "4", 12, 7, 1) // and is lost without that anyone says so
	if !o.step([]store.Change{change("p", "1")}, 20, false) {
		t.Error("another value does not differ")
	}
	want(&o, "1")
	commit(&o, "4", 12, 20, 1)
	want(&o, "1")
	if !o.step([]store.Change{{Entry: store.Entry{Key: "p"}, Deleted: true}}, 21, false) {
		t.Error("a deletion does not differ")
	}
	want(&o, "")
}
