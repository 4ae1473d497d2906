package client

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// TestBatchesMerge: batches that wait are one step, with the last change of each key, ordered, each
// key once: also if weir-store names a key twice or in no order. Deltas are of what was before
// them: in the same step, or in the copy.
func TestBatchesMerge(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	value := func() []byte {
		return fmt.Appendf(nil, "%d%s%d", random.IntN(9), strings.Repeat("x", 40), random.IntN(9))
	}
	deltas := 0
	for range 2000 {
		revision := int64(7)
		of := store.NewCopy(store.Snapshot{Revision: revision, Entries: []store.Entry{
			{Key: "0", Value: value(), Revision: 1}, {Key: "1", Value: value(), Revision: 2}}})
		now, want := map[string][]byte{}, map[string]string{}
		for e := range of.All() {
			now[e.Key] = e.Value
		}
		in := newInbox()
		for n := 1 + random.IntN(4); n > 0; n-- {
			revision++
			m := wire.Batch{Revision: revision, More: n > 1 && random.IntN(2) == 0}
			for range random.IntN(4) {
				ch := wire.Change{Change: store.Change{Entry: store.Entry{
					Key: fmt.Sprint(random.IntN(5)), Value: value(), Revision: revision}}}
				was, there := now[ch.Key]
				now[ch.Key] = ch.Value
				switch kind := random.IntN(3); {
				case kind == 0:
					ch.Value, ch.Deleted = nil, true
					delete(now, ch.Key)
					want[ch.Key] = fmt.Sprint(ch.Change)
				case kind == 1 && there:
					want[ch.Key] = fmt.Sprint(ch.Change)
					ch.Delta, ch.Value = wire.NewDelta(was, ch.Value), nil
					deltas++
				default:
					want[ch.Key] = fmt.Sprint(ch.Change)
				}
				m.Changes = append(m.Changes, ch)
			}
			if err := in.batch(m); err != nil {
				t.Fatal(err)
			}
		}
		got, err := in.take().batch.batch(of)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var keys []string
		for _, ch := range got.Changes {
			if keys = append(keys, ch.Key); fmt.Sprint(ch) != want[ch.Key] {
				t.Fatalf("seed %d: %v, expected %v", seed, ch, want[ch.Key])
			}
		}
		if got.Revision != revision || !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("seed %d: revision %d, keys %v", seed, got.Revision, keys)
		}
	}
	if deltas == 0 {
		t.Error("no deltas: it tests less than it says")
	}
}

// TestSmallEntriesCount: a step is bounded by the memory that it takes, not by the bytes of its
// keys and values. A weir-store that is not what it should be may send any number of small ones.
func TestSmallEntriesCount(t *testing.T) {
	const left = 10 // so many more may come
	var changes []wire.Change
	var bucket wire.Bucket
	for i := range left + 1 {
		e := store.Entry{Key: string(rune('a' + i))}
		changes = append(changes, wire.Change{Change: store.Change{Entry: e}})
		bucket.Entries = append(bucket.Entries, e)
	}
	for name, add := range map[string]func(*inbox) error{
		"changes": func(in *inbox) error { return in.batch(wire.Batch{Changes: changes}) },
		"entries": func(in *inbox) error {
			return in.part(wire.Copy{More: true, Buckets: []wire.Bucket{bucket}})
		},
	} {
		in := newInbox()
		in.size = maxStep - left*entryCost
		if err := add(in); err == nil {
			t.Errorf("%d %s, and the step has %d bytes of %d", left+1, name, in.size, maxStep)
		}
	}
}

// TestDifferenceOfIncompressibleValues: a copy as large as a host keeps comes as one difference,
// also if its frames are as large as what they have.
func TestDifferenceOfIncompressibleValues(t *testing.T) {
	value := make([]byte, 1<<19)
	rand.NewChaCha8([32]byte{}).Read(value)
	frame := wire.CopyParts([]wire.Bucket{{Entries: []store.Entry{{Key: "w/pods/b/0000",
		Value: value}}}})
	in := newInbox()
	s := &session{inbox: in}
	for range store.MaxCopy/len(value) - 1 { // one place is for the keys
		err := s.handle(wire.TypeCopy, frame[5:])
		if err != nil {
			t.Fatal(err)
		}
		in.copied.buckets[0] = nil // the test has less memory
	}
	if err := s.handle(wire.TypeCopy, wire.CopyEnd(7)[5:]); err != nil {
		t.Fatal(err)
	}
	if n := in.take(); n.difference == nil || n.difference.revision != 7 {
		t.Errorf("the difference: %v", n.difference)
	}
	in = newInbox()
	in.size = maxStep
	s.inbox = in
	if err := s.handle(wire.TypeCopy, frame[5:]); !errors.Is(err, errLarge) {
		t.Errorf("more than a host keeps: %v", err)
	}
}

// TestEditOfNothing: an edit of a key that the copy does not have, that was deleted, or that has
// another value is an error. The connection ends with it, and the next one gets the difference.
func TestDeltaOfNothing(t *testing.T) {
	of := store.NewCopy(store.Snapshot{Entries: []store.Entry{{Key: "b", Value: []byte("other")}}})
	delta := wire.NewDelta([]byte("value"), []byte("value and more"))
	change := func(key string) wire.Change {
		return wire.Change{Change: store.Change{Entry: store.Entry{Key: key}}, Delta: delta}
	}
	gone := change("b")
	gone.Delta, gone.Deleted = nil, true
	for name, changes := range map[string][]wire.Change{
		"absent": {change("a")}, "other": {change("b")}, "deleted": {gone, change("b")},
	} {
		in := newInbox()
		if err := in.batch(wire.Batch{Changes: changes}); err != nil {
			t.Fatal(err)
		}
		if b, err := in.take().batch.batch(of); err == nil {
			t.Errorf("%s: %v", name, b)
		}
	}
}

// TestStepThatDoesNotFit: a step that is too large ends the connection, not the following, and
// changes nothing.
func TestStepThatDoesNotFit(t *testing.T) {
	large := errors.New("too large")
	f := Follow{Copy: func() *store.Copy { return store.NewCopy(store.Snapshot{}) },
		Fits: func(store.Batch) error { return large },
		Step: func(store.Batch) error { t.Error("it is made"); return nil }}
	for what, n := range map[string]news{"a difference": {difference: &difference{}},
		"a batch": {batch: &merged{}}} {
		_, err := n.apply(t.Context(), nil, f)
		var fatal *stepError
		if !errors.Is(err, large) || errors.As(err, &fatal) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
