package pods

import (
	"testing"
	"time"

	"github.com/weirnet/weir/pod"
)

// TestPingWaitsForTheLocks: the watchdog sees a goroutine that keeps the lock of the labels;
// without pods there is nothing to wait for.
func TestPingWaitsForTheLocks(t *testing.T) {
	s := New(Config{})
	s.labels.mu.Lock()
	s.Ping()
	s.manager.Store(&pod.Manager{})
	free := make(chan struct{})
	go func() {
		s.Ping()
		close(free)
	}()
	select {
	case <-free:
		t.Error("the lock is held, and can be had")
	case <-time.After(50 * time.Millisecond):
	}
	s.labels.mu.Unlock()
	<-free
}
