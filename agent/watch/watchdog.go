package watch

import (
	"context"
	"sync/atomic"
	"time"
)

// Watchdog signals the service manager that the node is alive: that its loop turns and that its
// locks can be had.
type Watchdog struct {
	// Locks take the locks of parts that are held for moments. Requests to the kernel that are made
	// under these locks, or by the loop, end in time (package routes).
	Locks []func()
	// Slow are parts whose work under a lock may be long.
	Slow []*SlowPart
	// Heartbeat takes an element when the loop turns.
	Heartbeat chan<- struct{}
}

// Begin signals as often as the service manager wants, until ctx ends.
func (w *Watchdog) Begin(ctx context.Context) {
	every := interval()
	if every <= 0 {
		return
	}
	go func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if w.WaitHealthy(ctx) {
				Notify("WATCHDOG=1")
			}
		}
	}()
}

// WaitHealthy waits until every lock that matters was free once and the loop has turned. It returns
// false when ctx ends first.
func (w *Watchdog) WaitHealthy(ctx context.Context) bool {
	for _, lock := range w.Locks {
		lock()
	}
	now := time.Now()
	for _, s := range w.Slow {
		if s.stuck(now) {
			return false
		}
	}
	select {
	case w.Heartbeat <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// lockTimeout is how long the lock of a slow part, the peers or the pods, may be unavailable until
// the agent is restarted. Traffic needs neither, and some work under these locks is long: many
// peers and routes, each a request to a kernel that may be slow to answer.
const lockTimeout = 5 * time.Minute

// SlowPart notices that the locks of a part are no longer available, without waiting for them. One
// goroutine uses it.
type SlowPart struct {
	// Lock takes the locks.
	Lock func()
	// Progress returns how much was done; nil when that is not known.
	Progress func() uint64

	asked time.Time   // when the last question began that has no answer yet
	done  uint64      // how much was done then
	open  atomic.Bool // the question has no answer yet
}

// stuck asks in the background, one question at a time, and reports whether the last one has had no
// answer for lockTimeout although nothing was done meanwhile.
func (s *SlowPart) stuck(now time.Time) bool {
	var done uint64
	if s.Progress != nil {
		done = s.Progress()
	}
	switch {
	case s.open.CompareAndSwap(false, true):
		s.asked, s.done = now, done
		go func() {
			s.Lock()
			s.open.Store(false)
		}()
	case s.done != done:
		s.asked, s.done = now, done
	}
	return now.Sub(s.asked) >= lockTimeout
}
