package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/pod"
)

func newTrier() *Node { return &Node{log: slog.New(slog.DiscardHandler)} }

// within waits for something that takes a moment.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after 30 s: %s", what)
		}
	}
}

// TestWhatFailsIsTriedAgain: until something succeeds it is one problem, and then none; the end of
// the node ends the trying.
func TestWhatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newTrier()
	ctx, cancel := context.WithCancel(t.Context())
	var tried atomic.Int64
	n.keepTrying(ctx, "the thing", "wait", func() error {
		if tried.Add(1) < 2 {
			return errors.New("no space")
		}
		return nil
	})
	if p := n.problems.list(); len(p) != 1 ||
		p[0].What != "the thing: no space; it is tried again" {
		t.Errorf("problems: %+v", p)
	}
	soon(t, "it succeeds", func() bool { return tried.Load() == 2 && len(n.problems.list()) == 0 })
	n.keepTrying(ctx, "another", "wait", func() error { return errors.New("never") })
	cancel()
	n.trying.Wait()
}

// TestWatchersBeginAgain: a watcher that ends is begun again, and its problem ends when it has run
// for a while.
func TestWatchersBeginAgain(t *testing.T) {
	t.Parallel()
	n := newTrier()
	ctx, cancel := context.WithCancel(t.Context())
	var begun atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.keepRunning(ctx, "events", "weir doctor", func(ctx context.Context) error {
			if begun.Add(1) == 1 {
				return errors.New("the ring is gone")
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	soon(t, "it is a problem", func() bool { return len(n.problems.list()) == 1 })
	soon(t, "it is begun again, and no problem any more", func() bool {
		return begun.Load() == 2 && len(n.problems.list()) == 0
	})
	cancel()
	<-done
}

// TestWatchdogSeesHeldLocks: the node is not well while a goroutine keeps a lock, or while its loop
// does not turn.
func TestWatchdogSeesHeldLocks(t *testing.T) {
	n := newTrier()
	n.peers, n.book, n.engine, n.pulse = &peers{}, &rulebook{}, &engines{kernel: &kernel.Engine{}},
		make(chan struct{})
	var asking sync.WaitGroup // as in a node, one question at a time
	well := func(turns bool) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if turns {
			go func() {
				select {
				case <-n.pulse:
				case <-ctx.Done():
				}
			}()
		}
		answer := make(chan bool, 1)
		asking.Go(func() { answer <- n.isWell(ctx) })
		select {
		case ok := <-answer:
			return ok
		case <-time.After(300 * time.Millisecond):
			return false
		}
	}
	if !well(true) {
		t.Error("not well although nothing is wrong")
	}
	if well(false) {
		t.Error("well although the loop does not turn")
	}
	for name, lock := range map[string]interface {
		Lock()
		Unlock()
	}{"rules": &n.book.mu, "interfaces": &n.following, "hooks": &n.mu} {
		lock.Lock()
		if well(true) {
			t.Errorf("well although a goroutine keeps the lock of the %s", name)
		}
		lock.Unlock()
		asking.Wait()
	}
	// Work on the peers may take long; then only a lock that is unavailable for minutes counts.
	n.peers.mu.Lock()
	if !well(true) {
		t.Error("not well although work on the peers has just begun")
	}
	n.peers.watched.asked = time.Now().Add(-lockPatience)
	if well(true) {
		t.Error("well although a goroutine keeps the lock of the peers")
	}
	n.peers.set.Add(1)
	if !well(true) {
		t.Error("not well although the work on the peers gets on")
	}
	n.peers.watched.asked = time.Now().Add(-lockPatience)
	n.peers.mu.Unlock()
	soon(t, "the peers can be had again", func() bool { return well(true) })
}

// TestWatchdogSeesHeldPodLocks: a goroutine that keeps the locks of the pods is noticed.
func TestWatchdogSeesHeldPodLocks(t *testing.T) {
	p := &pods{manager: &pod.Manager{}, labels: newPodLabels(nil)}
	if (*pods)(nil).stuck(time.Now()) {
		t.Error("stuck without pods")
	}
	p.labels.mu.Lock()
	began := time.Now()
	if p.stuck(began) || p.stuck(began.Add(lockPatience-time.Second)) {
		t.Error("stuck although there was hardly time")
	}
	if !p.stuck(began.Add(lockPatience)) {
		t.Error("not stuck although a goroutine keeps the lock of the labels")
	}
	p.labels.mu.Unlock()
	soon(t, "the pods can be had again", func() bool { return !p.stuck(began.Add(lockPatience)) })
}
