package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

const smallCopy = 10000 // bytes

// follow runs a server that keeps at most smallCopy.
func follow(t *testing.T) (*Server, *storetest.Model) {
	t.Helper()
	model := storetest.NewModel(time.Minute)
	s := &Server{config: Config{Store: model, Name: "w/", MaxCopy: smallCopy,
		Progress: time.Second, Silence: 15 * time.Second}, state: newState(), beat: newBeat(),
		conns: map[*conn]bool{}, writes: limiters{}, reads: limiters{}}
	s.config.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return s, model
}

// put writes a value past weir-store, as an attacker in the store does, or an administrator of
// etcd.
func put(t *testing.T, s store.Store, key string, size int) {
	t.Helper()
	if _, err := s.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: key,
		Value: make([]byte, size)}}}); err != nil {
		t.Fatal(err)
	}
}

// TestLargeCopy: weir-store does not follow a store that is larger than a host keeps, and counts
// that. It follows again when it fits, whatever came between.
func TestLargeCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, model := follow(t)
		put(t, model, "w/a", smallCopy/2)
		synctest.Wait()
		before := s.state.revision()
		put(t, model, "w/b", smallCopy/2)
		time.Sleep(time.Minute) // of the bubble
		if _, there := s.state.get("w/b"); there || s.state.revision() != before {
			t.Error("weir-store follows a store that is too large")
		}
		if !s.Gauges().Failing || s.Counters.Large.Load() < 2 {
			t.Errorf("it is not counted each time: %d", s.Counters.Large.Load())
		}
		if full := s.Gauges().CopyFull; full <= 1 {
			t.Errorf("the copy is %v full while it is too large", full)
		}
		for limit, want := range map[int]bool{95: false, 100: true} {
			by := Admission{FillLimit: func(string) int { return limit }}
			txn := store.Txn{Put: []store.Entry{{Key: "w/d", Value: make([]byte, 10)}}}
			if err := (&conn{server: s}).hasSpace(txn, by); (err == nil) != want {
				t.Errorf("what needs less than %d %% while it is too large: %v", limit, err)
			}
		}
		put(t, model, "w/c", 1)
		put(t, model, "w/b", smallCopy/8)
		time.Sleep(time.Minute)
		if _, there := s.state.get("w/c"); !there || s.Gauges().Failing {
			t.Error("weir-store does not follow a store that fits again")
		}
		if full := s.PercentFull(); full > 80 {
			t.Errorf("it is %d %% full when it fits again", full)
		}
		if full := s.Gauges().CopyFull; full > 0.8 {
			t.Errorf("the copy is %v full when it fits again", full)
		}
	})
}

// TestCopyIsNearlyFull: what clients write is bounded by the copy as by the database, so that hosts
// do not stop following. What becomes smaller is taken, and what is under way counts.
func TestCopyIsNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, model := follow(t)
		synctest.Wait()
		c := &conn{server: s}
		c.admitted.FillLimit = func(string) int { return 80 }
		write := func(key string, size int) error {
			_, err := (&admitted{Store: model, conn: c}).Commit(t.Context(),
				store.Txn{Put: []store.Entry{{Key: key, Value: make([]byte, size)}}})
			synctest.Wait()
			return err
		}
		n := 0
		for ; n < 100; n++ {
			if err := write(fmt.Sprint("w/", n), 300); err != nil {
				if !errors.Is(err, store.ErrUnavailable) || s.Counters.NoSpace.Load() != 1 {
					t.Fatal(err)
				}
				break
			}
		}
		if full := s.PercentFull(); full < 80 || full > 90 {
			t.Errorf("it is %d %% full", full)
		}
		if err := write("w/0", 301); err == nil {
			t.Error("a longer value is taken")
		}
		if err := write("w/0", 0); err != nil {
			t.Errorf("a shorter value: %v", err)
		}
		s.writing.Add(smallCopy)
		if full := s.PercentFull(); full != 100 {
			t.Errorf("with what is under way it is %d %% full", full)
		}
		if err := write("w/1", 10); err != nil {
			t.Errorf("a shorter value when the copy is full: %v", err)
		}
		if err := write("x/text", 300); err != nil {
			t.Errorf("a value that the copy does not have: %v", err)
		}
	})
}
