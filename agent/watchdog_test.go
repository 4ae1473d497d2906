package agent

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/engines"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/pod"
)

// soon waits for something that takes a moment.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after 30 s: %s", what)
		}
	}
}

// TestWatchdogSeesHeldLocks: the node is not well while a goroutine keeps a lock, or while its loop
// does not turn.
func TestWatchdogSeesHeldLocks(t *testing.T) {
	n := &Node{log: slog.New(slog.DiscardHandler)}
	n.peers, n.book, n.engine, n.pulse = &peers{}, &rulebook{}, engines.New(&kernel.Engine{}),
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
