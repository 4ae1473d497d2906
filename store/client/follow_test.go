package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/storetest"
)

// follower is a host that follows in the background.
type follower struct {
	client *client.Client
	stop   func() error // and waits

	mu       sync.Mutex
	copy     *store.Guarded
	steps    int
	largest  int // changes of a step
	failures []error

	hold   atomic.Pointer[chan struct{}] // while set, Step waits for it to be closed
	failed atomic.Pointer[chan struct{}] // while set, so does Failed, and nothing is tried again
}

var unguarded = store.Guard{
	Kind:  func(string) string { return "" },
	Meant: func(*store.Copy, string) bool { return true },
}

// follow follows from a snapshot. check gets every step's result.
func (w *wired) follow(t *testing.T, from store.Snapshot, check func(store.Snapshot)) *follower {
	t.Helper()
	f := &follower{client: w.client(t, nil), copy: store.NewGuarded(unguarded, from)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- f.client.Follow(ctx, client.Follow{
			Copy: func() *store.Copy { return f.copy.Stored() },
			Step: func(b store.Batch) error {
				if hold := f.hold.Load(); hold != nil {
					<-*hold
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				f.copy.Step(b)
				f.steps++
				f.largest = max(f.largest, len(b.Changes))
				check(f.copy.Stored().Snapshot())
				return nil
			},
			Failed: func(err error) {
				f.mu.Lock()
				f.failures = append(f.failures, err)
				f.mu.Unlock()
				if failed := f.failed.Load(); failed != nil {
					<-*failed
				}
			},
		})
	}()
	f.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { f.stop() })
	return f
}

func contentOf(s store.Snapshot) map[string]string {
	content := map[string]string{}
	for _, e := range s.Entries {
		content[e.Key] = string(e.Value)
	}
	return content
}

func (w *wired) commit(t *testing.T, x store.Txn) int64 {
	t.Helper()
	revision, err := w.model.Commit(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (w *wired) put(t *testing.T, key, value string) int64 {
	t.Helper()
	return w.commit(t, store.Txn{Put: []store.Entry{{Key: key, Value: []byte(value)}}})
}

// arrives waits until a follower has what the model has.
func (w *wired) arrives(t *testing.T, f *follower) {
	t.Helper()
	s, err := w.model.Read(t.Context(), w.name, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := store.NewCopy(s).Sum()
	storetest.Eventually(t, "the follower has what the store has", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		// A copy keeps its digests when they are asked for: this one's belong to Follow.
		return store.NewCopy(f.copy.Stored().Snapshot()).Sum() == want
	})
}

func ignore(store.Snapshot) {}

// TestFollowFaults: random transactions under compactions, restarts, partitions and a store that is
// put back. After every step a follower has exactly what the store had at that
// revision; in the end, what it has.
func TestFollowFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := testrand.Seed(t)
		random := rand.New(rand.NewPCG(seed, 0))
		w := newPiped(t, "h/", silence)
		w.put(t, "h/begin", "1")
		var rewound atomic.Bool // then a revision has no one content any more
		check := func(s store.Snapshot) {
			if rewound.Load() {
				return
			}
			want, err := w.model.Read(context.Background(), "h/", s.Revision)
			if errors.Is(err, store.ErrCompacted) {
				return
			}
			if err != nil || store.NewCopy(want).Sum() != store.NewCopy(s).Sum() {
				t.Errorf("at %d: %v, expected %v (%v)", s.Revision, contentOf(s), contentOf(want),
					err)
			}
		}
		var all []*follower
		for range 3 {
			all = append(all, w.follow(t, store.Snapshot{}, check))
		}
		var last int64
		for i := range 600 {
			switch {
			case i%150 == 149:
				w.stop()
				w.model.Restart()
				w.start(t)
			case i%61 == 60:
				w.model.Compact(last)
			case i%200 == 199:
				w.proxy.Cut(true)
				time.Sleep(silence + silence/4)
				w.proxy.Cut(false)
			case i == 500:
				rewound.Store(true)
				w.model.Rewind(last - 30)
			case i%40 == 39:
				time.Sleep(20 * time.Millisecond)
			}
			x := store.Txn{Put: []store.Entry{{Key: fmt.Sprintf("h/%d", random.IntN(40)),
				Value: bytes.Repeat([]byte("a part of it; "), 30+random.IntN(3))}}}
			if gone := fmt.Sprintf("h/%d", random.IntN(40)); gone != x.Put[0].Key {
				x.Delete = []string{gone}
			}
			last = w.commit(t, x)
		}
		for _, f := range all {
			w.arrives(t, f)
		}
	})
}

// TestContinue: a host that comes back with its copy gets what it missed, and no difference.
func TestContinue(t *testing.T) {
	w := newSteady(t, "h/")
	for i := range 20 {
		w.put(t, fmt.Sprintf("h/%d", i), "1")
	}
	f := w.follow(t, store.Snapshot{}, ignore)
	w.arrives(t, f)
	if err := f.stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow ended with %v", err)
	}
	from := f.copy.Stored().Snapshot()
	w.put(t, "h/0", "2")
	w.put(t, "h/new", "2")
	storetest.Eventually(t, "weir-store has it", func() bool {
		s, _ := w.client(t, nil).Read(t.Context(), "h/new", 0)
		return len(s.Entries) == 1
	})
	before := w.server.Counters.Differences.Load()
	again := w.follow(t, from, ignore)
	w.arrives(t, again)
	again.stop()
	if n := w.server.Counters.Differences.Load(); n != before {
		t.Errorf("%d differences", n-before)
	}
	if again.largest > 2 {
		t.Errorf("a step of %d changes", again.largest)
	}
}

// TestOtherHistory: a host whose content at a revision is not what the store had gets the
// difference, although weir-store has all changes since.
func TestOtherHistory(t *testing.T) {
	w := newSteady(t, "h/")
	first := w.put(t, "h/a", "1")
	warm := w.follow(t, store.Snapshot{}, ignore)
	w.arrives(t, warm)
	w.put(t, "h/b", "1")
	w.arrives(t, warm)
	f := w.follow(t, store.Snapshot{Revision: first, Entries: []store.Entry{
		{Key: "h/a", Value: []byte("other"), Revision: 1},
		{Key: "h/c", Value: []byte("1"), Revision: 1}}}, ignore)
	w.arrives(t, f)
}

// TestDifferenceIsSmall: after a restart of weir-store, a host gets the buckets that changed.
func TestDifferenceIsSmall(t *testing.T) {
	w := newSteady(t, "h/")
	for i := range 500 {
		w.put(t, fmt.Sprintf("h/%d", i), "1")
	}
	f := w.follow(t, store.Snapshot{}, ignore)
	w.arrives(t, f)
	f.stop()
	from := f.copy.Stored().Snapshot()
	w.stop()
	w.commit(t, store.Txn{Put: []store.Entry{{Key: "h/7", Value: []byte("2")}},
		Delete: []string{"h/8"}})
	w.start(t)
	again := w.follow(t, from, ignore)
	w.arrives(t, again)
	again.stop()
	if again.largest != 2 {
		t.Errorf("a step of %d changes, expected 2", again.largest)
	}
	if n := w.server.Counters.Differences.Load(); n != 1 {
		t.Errorf("%d differences", n)
	}
}

// TestSlowHost: a host that takes nothing for a while gets the newest values as one step, and
// others do not wait for it. Its calls are answered meanwhile.
func TestSlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPiped(t, "h/", silence)
		w.put(t, "h/begin", "1")
		slow := w.follow(t, store.Snapshot{}, ignore)
		fast := w.follow(t, store.Snapshot{}, ignore)
		w.arrives(t, slow)
		hold := make(chan struct{})
		slow.hold.Store(&hold)
		for i := range 300 {
			w.put(t, fmt.Sprintf("h/%d", i%30), fmt.Sprint(i))
		}
		w.arrives(t, fast)
		if _, err := slow.client.Read(t.Context(), "h/begin", 0); err != nil {
			t.Errorf("a call of a host that is slow: %v", err)
		}
		slow.mu.Lock()
		before := slow.steps
		slow.mu.Unlock()
		synctest.Wait() // for the slow one's connection, which gets all of it
		slow.hold.Store(nil)
		close(hold)
		w.arrives(t, slow)
		slow.stop()
		if n := slow.steps - before; n > 3 {
			t.Errorf("%d steps for what was missed", n)
		}
	})
}

// TestSlowLine: a frame that takes longer than the time of silence arrives.
func TestSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPiped(t, "h/", 3*silence)
		f := w.follow(t, store.Snapshot{}, ignore)
		w.put(t, "h/begin", "1")
		w.arrives(t, f)
		w.proxy.Slow.Store(true)
		random := rand.New(rand.NewPCG(1, 1))
		value := make([]byte, 200<<10)
		for i := range value {
			value[i] = byte(random.Uint32()) // it does not compress
		}
		begin := time.Now()
		w.put(t, "h/large", string(value))
		w.arrives(t, f)
		if took := time.Since(begin); took < w.silence {
			t.Errorf("it took %v, which tests nothing", took)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.failures) > 0 {
			t.Errorf("it failed: %v", f.failures)
		}
	})
}

// TestStepFails: an error of Step ends Follow.
func TestStepFails(t *testing.T) {
	w := newSteady(t, "h/")
	w.put(t, "h/a", "1")
	c := w.client(t, nil)
	full := errors.New("full")
	err := c.Follow(t.Context(), client.Follow{
		Copy:   func() *store.Copy { return store.NewCopy(store.Snapshot{}) },
		Step:   func(store.Batch) error { return full },
		Failed: func(err error) { t.Errorf("failed: %v", err) },
	})
	if !errors.Is(err, full) {
		t.Errorf("Follow: %v", err)
	}
}

// TestStoreSilent: weir-store that hears nothing of the store says so, and the client leaves it.
func TestStoreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPiped(t, "h/", 3*silence)
		w.put(t, "h/a", "1")
		f := w.follow(t, store.Snapshot{}, ignore)
		w.arrives(t, f)
		// The state is looked at before the client connects again, which it may do at once.
		failed := make(chan struct{})
		f.failed.Store(&failed)
		again := sync.OnceFunc(func() {
			f.failed.Store(nil)
			close(failed)
		})
		defer again()
		w.model.Partition(true)
		var s client.State
		storetest.Eventually(t, "the client leaves", func() bool {
			s = f.client.State()
			return !s.Connected
		})
		if s.Err == nil || time.Since(s.Heard) < w.silence {
			t.Errorf("state: %+v", s)
		}
		storetest.Eventually(t, "Follow says so", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.failures) > 0
		})
		again()
		w.model.Partition(false)
		w.put(t, "h/a", "2")
		w.arrives(t, f)
		storetest.Eventually(t, "the client is connected and hears the store", func() bool {
			s := f.client.State()
			return s.Connected && time.Since(s.Heard) <= w.silence
		})
	})
}
