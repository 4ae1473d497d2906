package rules

import (
	"testing"
	"time"
)

// TestPingWaitsForTheLock: the watchdog sees a goroutine that keeps the lock.
func TestPingWaitsForTheLock(t *testing.T) {
	b := new(Manager)
	b.mu.Lock()
	free := make(chan struct{})
	go func() {
		b.Ping()
		close(free)
	}()
	select {
	case <-free:
		t.Error("the lock is held, and can be had")
	case <-time.After(50 * time.Millisecond):
	}
	b.mu.Unlock()
	<-free
}
