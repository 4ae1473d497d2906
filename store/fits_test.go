package store_test

import (
	"errors"
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
