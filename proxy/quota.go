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

// acquire takes one for a client. It returns false if none is left for it.
func (q *quota) acquire(client netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	src := source(client)
	if q.used >= q.limit || q.bySource[src] >= max(1, q.limit/4) {
		return false
	}
	q.used++
	q.bySource[src]++
	return true
}

// release returns one.
func (q *quota) release(client netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	src := source(client)
	q.used--
	if q.bySource[src]--; q.bySource[src] == 0 {
		delete(q.bySource, src)
	}
}
