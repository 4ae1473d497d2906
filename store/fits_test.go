package store_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestFits: what is stored and what is held counts, also after changes that make it smaller. What
// adds nothing fits always.
func TestFits(t *testing.T) {
	entry := func(key string, size int) store.Entry {
		return store.Entry{Key: key, Value: make([]byte, size)}
	}
	batch := func(entries ...store.Entry) (b store.Batch) {
		for _, e := range entries {
			b.Changes = append(b.Changes, store.Change{Entry: e, Deleted: e.Value == nil})
		}
		return b
	}
	const limit = 10000
	d := store.NewGuarded(store.Guard{Kind: func(string) string { return "all" },
		Meant: func(*store.Copy, string) bool { return false }}, store.Snapshot{})
	step := func(b store.Batch, fits bool) {
		t.Helper()
		err := d.Fits(b, limit)
		var large *store.LargeError
		if fits != (err == nil) || !fits && !errors.As(err, &large) {
			t.Errorf("fits %v, want %v", err, fits)
		}
		if err == nil {
			d.Step(b)
		}
	}
	step(batch(entry("a", 4000), entry("b", 4000)), true)
	step(batch(entry("c", 2000)), false)
	step(batch(entry("a", 2000)), true)
	step(batch(entry("c", 2000)), true)
	step(batch(entry("a", 4000)), false)
	step(batch(store.Entry{Key: "a"}, store.Entry{Key: "b"}, store.Entry{Key: "c"}), true)
	if len(d.Held()) != 3 {
		t.Fatalf("held: %v", d.Held())
	}
	step(batch(entry("d", 2000)), false)
	d.Accept()
	step(batch(entry("d", 2000)), true)
}

// TestFitsAfterDeletions: what a step deletes and is not held frees space for what the step adds,
// and a copy that is too large already may become smaller. To ask changes nothing.
func TestFitsAfterDeletions(t *testing.T) {
	entry := func(key string, size int) store.Entry {
		return store.Entry{Key: key, Value: make([]byte, size), Revision: 1}
	}
	d := store.NewGuarded(store.Guard{Kind: func(key string) string { return key[:1] },
		Meant: func(stored *store.Copy, key string) bool {
			_, removed := stored.Get("removed/" + key)
			return removed
		}}, store.Snapshot{Revision: 1, Entries: []store.Entry{entry("a1", 3000),
		entry("a2", 3000), entry("b1", 3000), entry("b2", 3000)}})
	const limit = 13500 // it takes 13032
	gone := func(key string) store.Change {
		return store.Change{Entry: store.Entry{Key: key}, Deleted: true}
	}
	added := func(key string, size int) store.Change {
		e := entry(key, size)
		e.Revision = 2
		return store.Change{Entry: e}
	}
	for _, c := range []struct {
		what    string
		changes []store.Change
		limit   int
		fits    bool
	}{
		{"a removal that is explained", []store.Change{gone("a1"), added("removed/a1", 300)},
			limit, true},
		{"one that is held", []store.Change{gone("a1"), added("removed/b1", 300)}, limit, false},
		{"something larger in its place", []store.Change{gone("a1"), added("a3", 3200),
			added("removed/a1", 300)}, limit, false},
		{"a copy that is too large becomes smaller", []store.Change{gone("a1"),
			added("removed/a1", 300)}, 5000, true},
		{"and not larger", []store.Change{added("b1", 3001)}, 5000, false},
	} {
		sum, all := d.Stored().Sum(), d.Enforced()
		err := d.Fits(store.Batch{Revision: 2, Changes: c.changes}, c.limit)
		if c.fits != (err == nil) {
			t.Errorf("%s: %v", c.what, err)
		}
		if d.Stored().Sum() != sum || !reflect.DeepEqual(d.Enforced(), all) || d.Held() != nil {
			t.Fatalf("%s: to ask has changed the copy", c.what)
		}
	}
	b := store.Batch{Revision: 2, Changes: []store.Change{gone("a1"), added("removed/a1", 300)}}
	if got := d.Step(b); len(got) != 2 {
		t.Errorf("the step changes %v", got)
	}
}
