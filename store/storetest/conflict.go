package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirnet/weir/store"
)

// testConflict: a comparison that is false changes nothing, and the error names the key and what
// it has.
func testConflict(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	created := commit(t, s, store.Txn{Compare: []store.Compare{{Key: "a"}},
		Put: []store.Entry{put("a", "1")}})
	changed := commit(t, s, store.Txn{Compare: []store.Compare{{Key: "a", Revision: created}},
		Put: []store.Entry{put("a", "2")}})
	for what, x := range map[string]struct {
		compare store.Compare
		have    int64
	}{
		"exists":    {store.Compare{Key: "a"}, changed},
		"changed":   {store.Compare{Key: "a", Revision: created}, changed},
		"is absent": {store.Compare{Key: "b", Revision: created}, 0},
	} {
		_, err := s.Commit(limited(t), store.Txn{
			Compare: []store.Compare{{Key: "other"}, x.compare},
			Put:     []store.Entry{put("c", "x")}, Delete: []string{"a"}})
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || conflict.Compare != x.compare || conflict.Have != x.have {
			t.Errorf("%s: %v, expected that the key has %d", what, err, x.have)
		}
		expectError(t, what, err, store.ErrConflict)
	}
	if got := showEntries(read(t, s, "a", 0).Entries); got != fmt.Sprintf("a=2@%d", changed) {
		t.Errorf("changed by a conflict: %s", got)
	}
	deleted := commit(t, s, store.Txn{Compare: []store.Compare{{Key: "a", Revision: changed}},
		Delete: []string{"a"}})
	again := commit(t, s, store.Txn{Compare: []store.Compare{{Key: "a"}},
		Put: []store.Entry{put("a", "3")}})
	if !(created < changed && changed < deleted && deleted < again) {
		t.Errorf("revisions: %d %d %d %d", created, changed, deleted, again)
	}
}

// testCounters: writers that compare what they read lose no update.
func testCounters(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	commitPut(t, s, put("n", "0"))
	const writers, each = 4, 15
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for done := 0; done < each; {
				before, err := s.Read(limited(t), "n", 0)
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				n, _ := strconv.Atoi(string(before.Entries[0].Value))
				_, err = s.Commit(limited(t), store.Txn{
					Compare: []store.Compare{{Key: "n", Revision: before.Entries[0].Revision}},
					Put:     []store.Entry{put("n", strconv.Itoa(n+1))}})
				switch {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("commit: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	if got := string(read(t, s, "n", 0).Entries[0].Value); got != strconv.Itoa(writers*each) {
		t.Errorf("%d increments made %s", writers*each, got)
	}
}

// testClaims: one of many that create a key at once succeeds, and only its value is there.
func testClaims(t *testing.T, c Cluster) {
	s := c.Open(t, nil)
	for round := range 5 {
		key := fmt.Sprintf("claim/%d", round)
		var winners atomic.Int32
		var winner atomic.Value
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				name := fmt.Sprintf("host%d", i)
				_, err := s.Commit(limited(t), store.Txn{Compare: []store.Compare{{Key: key}},
					Put: []store.Entry{put(key, name)}})
				if err == nil {
					winners.Add(1)
					winner.Store(name)
				} else if !errors.Is(err, store.ErrConflict) {
					t.Errorf("claim: %v", err)
				}
			})
		}
		group.Wait()
		got := string(read(t, s, key, 0).Entries[0].Value)
		if winners.Load() != 1 || got != winner.Load() {
			t.Errorf("%d winners, the last is %v, the store has %s", winners.Load(),
				winner.Load(), got)
		}
	}
}
