package host

import (
	"sync"
	"testing"
	"time"
)

// TestPingWaitsForTheLocks: the watchdog sees a goroutine that keeps one of the locks.
func TestPingWaitsForTheLocks(t *testing.T) {
	h := NewHooks(Config{})
	for name, mu := range map[string]*sync.Mutex{"interfaces": &h.following, "hooks": &h.mu} {
		mu.Lock()
		free := make(chan struct{})
		go func() {
			h.Ping()
			close(free)
		}()
		select {
		case <-free:
			t.Errorf("the lock of the %s is held, and can be had", name)
		case <-time.After(50 * time.Millisecond):
		}
		mu.Unlock()
		<-free
	}
}
