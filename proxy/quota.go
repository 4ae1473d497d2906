package proxy

import (
	"net/netip"
	"sync"
)

// quota limits how many of something all clients together hold. One source holds at most a quarter.
type quota struct {
	limit int

	mu       sync.Mutex
	used     int                  // guarded by mu
	bySource map[netip.Prefix]int // guarded by mu
}

func newQuota(limit int) *quota { return &quota{limit: limit, bySource: map[netip.Prefix]int{}} }

// acquire takes n for a client. It returns false if so many are not left for it.
func (q *quota) acquire(client netip.Addr, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	src := source(client)
	if q.used+n > q.limit || q.bySource[src]+n > max(1, q.limit/4) {
		return false
	}
	if n > 0 {
		q.used += n
		q.bySource[src] += n
	}
	return true
}

// release returns n.
func (q *quota) release(client netip.Addr, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	src := source(client)
	q.used -= n
	if q.bySource[src] -= n; q.bySource[src] <= 0 {
		delete(q.bySource, src)
	}
}
