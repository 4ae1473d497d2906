package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// locker returns a function that takes a lock, as a part of a node does.
func locker(mu *sync.Mutex) func() {
	return func() {
		mu.Lock()
		mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
	}
}

// TestWatchdogSeesHeldLocks: the node is not well while a goroutine keeps a lock, or while its loop
// does not turn.
func TestWatchdogSeesHeldLocks(t *testing.T) {
	var rules, hooks, peers sync.Mutex
	var set atomic.Uint64
	heartbeat := make(chan struct{})
	slow := &SlowPart{Lock: locker(&peers), Progress: set.Load}
	w := Watchdog{Locks: []func(){locker(&rules), locker(&hooks)}, Slow: []*SlowPart{slow},
		Heartbeat: heartbeat}
	var asking sync.WaitGroup // as in a node, one question at a time
	// A node that is not well does not answer: the test waits only a moment for it. One that is
	// well answers, on however busy a machine.
	const moment, long = 100 * time.Millisecond, time.Minute
	well := func(turns bool, within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if turns {
			go func() {
				select {
				case <-heartbeat:
				case <-ctx.Done():
				}
			}()
		}
		answer := make(chan bool, 1)
		asking.Go(func() { answer <- w.WaitHealthy(ctx) })
		select {
		case ok := <-answer:
			return ok
		case <-time.After(3 * within):
			return false
		}
	}
	if !well(true, long) {
		t.Error("not well although nothing is wrong")
	}
	if well(false, moment) {
		t.Error("well although the loop does not turn")
	}
	for name, lock := range map[string]*sync.Mutex{"rules": &rules, "hooks": &hooks} {
		lock.Lock()
		if well(true, moment) {
			t.Errorf("well although a goroutine keeps the lock of the %s", name)
		}
		lock.Unlock()
		asking.Wait()
	}
	// Work on the peers may take long; then only a lock that is unavailable for minutes counts. An
	// earlier question must not be open any more, so that the next one waits for this lock.
	nstest.Eventually(t, "the questions so far are answered", func() bool {
		return !slow.open.Load()
	})
	peers.Lock()
	if !well(true, long) {
		t.Error("not well although work on the peers has just begun")
	}
	slow.asked = time.Now().Add(-lockTimeout)
	if well(true, moment) {
		t.Error("well although a goroutine keeps the lock of the peers")
	}
	set.Add(1)
	if !well(true, long) {
		t.Error("not well although the work on the peers gets on")
	}
	slow.asked = time.Now().Add(-lockTimeout)
	peers.Unlock()
	nstest.Eventually(t, "the peers can be had again", func() bool { return well(true, long) })
}

// TestSlowIsPatient: a goroutine that keeps the lock of a slow part is noticed, in time.
func TestSlowIsPatient(t *testing.T) {
	var mu sync.Mutex
	s := &SlowPart{Lock: locker(&mu)}
	mu.Lock()
	began := time.Now()
	if s.stuck(began) || s.stuck(began.Add(lockTimeout-time.Second)) {
		t.Error("stuck although there was hardly time")
	}
	if !s.stuck(began.Add(lockTimeout)) {
		t.Error("not stuck although a goroutine keeps the lock")
	}
	mu.Unlock()
	nstest.Eventually(t, "it can be had again", func() bool {
		return !s.stuck(began.Add(lockTimeout))
	})
}
