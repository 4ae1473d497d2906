package peers

import (
	"testing"
	"time"
)

// TestPingWaitsForTheLock: the watchdog sees a goroutine that keeps the lock, and that work under
// it gets on.
func TestPingWaitsForTheLock(t *testing.T) {
	p := New(Config{})
	p.mu.Lock()
	free := make(chan struct{})
	go func() {
		p.Ping()
		close(free)
	}()
	select {
	case <-free:
		t.Error("the lock is held, and can be had")
	case <-time.After(50 * time.Millisecond):
	}
	before := p.PeersProcessed()
	p.set.Add(1)
	if p.PeersProcessed() == before {
		t.Error("no progress is seen while the lock is held")
	}
	p.mu.Unlock()
	<-free
}

// TestProblemsDoNotWait: the status does not wait for a change that waits for the disk.
func TestProblemsDoNotWait(t *testing.T) {
	p := New(Config{})
	if all := p.Problems(); len(all) != 0 {
		t.Errorf("at rest: %v", all)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := make(chan int, 1)
	go func() { answer <- len(p.Problems()) }()
	select {
	case n := <-answer:
		if n != 1 {
			t.Errorf("%d problems", n)
		}
	case <-time.After(time.Minute):
		t.Error("no answer while the peers are changed")
	}
}
