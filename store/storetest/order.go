package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirnet/weir/store"
)

// testOrder: four writers commit transactions of several keys at once. Every watch gets every
// transaction whole, once, in order of revisions, and nothing of keys beside its subtree.
func testOrder(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	first := commitPut(t, s, put("t/begin", "x"))
	early := watch(t, s, "t/", first)
	const writers, each = 4, 40
	var mu sync.Mutex
	want := map[int64]string{}
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for n := range each {
				value := fmt.Sprintf("%d.%d", i, n)
				revision, err := s.Commit(limited(t), store.Txn{Put: []store.Entry{
					put("t/b", value), put(fmt.Sprintf("t/a%d", i), value), put("tt", value),
					put("t", value)}})
				if err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				mu.Lock()
				want[revision] = fmt.Sprintf("t/a%d=%s@%d t/b=%s@%d", i, value, revision, value,
					revision)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(want) != writers*each {
		t.Fatalf("%d revisions of %d transactions", len(want), writers*each)
	}
	late := watch(t, s, "t/", first)
	for name, w := range map[string]*watched{"early": early, "late": late} {
		last := first
		for range writers * each {
			b := w.next(t)
			if b.Revision <= last || !orderedByKey(b) || show(b.Changes) != want[b.Revision] {
				t.Fatalf("%s: after %d: revision %d: %q, expected %q", name, last, b.Revision,
					show(b.Changes), want[b.Revision])
			}
			last = b.Revision
		}
	}
}

// history commits puts, replacements and deletions and returns the revisions, and the content of
// h/ at each of them.
func history(t *testing.T, s store.Store) (revisions []int64, content map[int64]string) {
	content = map[int64]string{}
	have := store.NewCopy(store.Snapshot{})
	for i := range 12 {
		x := store.Txn{Put: []store.Entry{put(fmt.Sprintf("h/%d", i%5), fmt.Sprint(i))}}
		if i%3 == 2 {
			x.Delete = []string{fmt.Sprintf("h/%d", (i+4)%5)}
		}
		revision := commit(t, s, x)
		b := store.Batch{Revision: revision}
		for _, e := range x.Put {
			e.Revision = revision
			b.Changes = append(b.Changes, store.Change{Entry: e})
		}
		for _, key := range x.Delete {
			b.Changes = append(b.Changes, store.Change{Entry: store.Entry{Key: key}, Deleted: true})
		}
		have.Apply(b)
		revisions = append(revisions, revision)
		content[revision] = showEntries(have.Snapshot().Entries)
	}
	return revisions, content
}

// testResume: a watch after any revision continues with the next one, and a copy that follows it
// arrives at what the store has.
func testResume(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	revisions, content := history(t, s)
	for i, after := range revisions {
		have := store.NewCopy(read(t, s, "h/", after))
		w := watch(t, s, "h/", after)
		for _, revision := range revisions[i+1:] {
			b := w.next(t)
			have.Apply(b)
			if got := showEntries(have.Snapshot().Entries); b.Revision != revision ||
				got != content[revision] {
				t.Fatalf("after %d: revision %d: %s, expected %d: %s", after, b.Revision, got,
					revision, content[revision])
			}
		}
	}
}

// testSnapshots: a revision is read as it was, one key or a subtree.
func testSnapshots(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	revisions, content := history(t, s)
	last := commitPut(t, s, put("h", "key"), put("ha", "beside"), put("h0", "after the subtree"))
	for _, revision := range revisions {
		got := read(t, s, "h/", revision)
		if showEntries(got.Entries) != content[revision] || got.Revision < revision {
			t.Errorf("at %d: %d: %s, expected %s", revision, got.Revision,
				showEntries(got.Entries), content[revision])
		}
	}
	newest := read(t, s, "h/", 0)
	if showEntries(newest.Entries) != content[revisions[len(revisions)-1]] ||
		newest.Revision != last {
		t.Errorf("newest: %d: %s", newest.Revision, showEntries(newest.Entries))
	}
	if got := showEntries(read(t, s, "h", 0).Entries); got != fmt.Sprintf("h=key@%d", last) {
		t.Errorf("one key: %s", got)
	}
	if got := read(t, s, "absent/", 0); len(got.Entries) != 0 || got.Revision != last {
		t.Errorf("an empty subtree: %+v", got)
	}
	_, err := s.Read(limited(t), "h/", last+1000)
	expectError(t, "read the future", err, store.ErrBehind)
	expectError(t, "watch the future", watch(t, s, "h/", last+1000).failure(t), store.ErrBehind)
}

// testLimits: the largest transaction is made and arrives whole, and a subtree of more keys than a
// driver reads at once is complete.
func testLimits(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	first := commitPut(t, s, put("l/begin", "x"))
	w := watch(t, s, "l/", first)
	const transactions = 10
	for i := range transactions {
		var x store.Txn
		for n := range store.MaxOperations {
			key := fmt.Sprintf("l/%d/%03d", i, n)
			x.Put = append(x.Put, put(key, "small"))
			x.Compare = append(x.Compare, store.Compare{Key: key})
		}
		revision := commit(t, s, x)
		if b := w.next(t); b.Revision != revision || len(b.Changes) != store.MaxOperations {
			t.Fatalf("revision %d with %d changes, expected %d with %d", b.Revision,
				len(b.Changes), revision, store.MaxOperations)
		}
	}
	const key = "l/large"
	revision := commitPut(t, s, put(key, strings.Repeat("x", store.MaxBytes-len(key))))
	if b := w.next(t); b.Revision != revision ||
		len(b.Changes[0].Value) != store.MaxBytes-len(key) {
		t.Errorf("the large value arrived at %d with %d bytes", b.Revision,
			len(b.Changes[0].Value))
	}
	if n := len(read(t, s, "l/", 0).Entries); n != transactions*store.MaxOperations+2 {
		t.Errorf("%d keys, expected %d", n, transactions*store.MaxOperations+2)
	}
}

// testPages: a subtree that a driver reads in pages is read at one revision, without a gap between
// the pages. Every key is the beginning of the next one.
func testPages(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	const transactions = 5
	keys := transactions * store.MaxOperations
	key := func(i int) string { return "p/" + strings.Repeat("!", i+1) }
	for i := range transactions {
		var x store.Txn
		for n := range store.MaxOperations {
			x.Put = append(x.Put, put(key(i*store.MaxOperations+n), "0"))
		}
		commit(t, s, x)
	}
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			value := fmt.Sprint(i)
			if _, err := s.Commit(limited(t), store.Txn{Put: []store.Entry{put(key(0), value),
				put(key(keys-1), value)}}); err != nil {
				t.Errorf("commit: %v", err)
				return
			}
		}
	})
	for range 30 {
		got := read(t, s, "p/", 0).Entries
		if len(got) != keys {
			t.Errorf("%d keys, expected %d", len(got), keys)
			break
		}
		if first, last := got[0], got[keys-1]; string(first.Value) != string(last.Value) {
			t.Errorf("one transaction wrote %s and %s", first.Value, last.Value)
			break
		}
	}
	close(stop)
	group.Wait()
}

// testInvalid: what Check refuses no driver makes.
func testInvalid(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	for what, x := range map[string]store.Txn{
		"nothing":      {Compare: []store.Compare{{Key: "a"}}},
		"a subtree":    {Delete: []string{"a/"}},
		"no key":       {Put: []store.Entry{put("", "x")}},
		"twice":        {Put: []store.Entry{put("a", "1"), put("b", "1")}, Delete: []string{"a"}},
		"compare tree": {Put: []store.Entry{put("a", "1")}, Compare: []store.Compare{{Key: "/"}}},
		"too large":    {Put: []store.Entry{put("a", strings.Repeat("x", store.MaxBytes))}},
		"too many":     {Delete: strings.Split(strings.Repeat("a,", store.MaxOperations)+"a", ",")},
	} {
		if _, err := s.Commit(limited(t), x); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := read(t, s, "a", 0); len(got.Entries) != 0 {
		t.Errorf("made: %s", showEntries(got.Entries))
	}
}
