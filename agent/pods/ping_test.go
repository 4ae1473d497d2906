package pods

import (
	"net/netip"
	"strconv"
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

// TestPingCopiesNothing: the watchdog takes the lock of the labels, and no copy of their tables.
func TestPingCopiesNothing(t *testing.T) {
	s := New(Config{})
	s.manager.Store(&pod.Manager{})
	s.labels = newLabels(&tableStore{tables: map[string]map[netip.Prefix]bool{}}, func() {})
	for i := range 1000 {
		key := strconv.Itoa(i)
		if err := s.labels.attached(labelled(key, "10.0.0.1", "app"+key)); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1, s.Ping); n > 100 {
		t.Errorf("Ping makes %v allocations", n)
	}
}
