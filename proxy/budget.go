package proxy

import (
	"net/netip"
	"sync"
)

// budget counts what all clients have of something bounded. One source has at most a quarter.
type budget struct {
	most int

	mu   sync.Mutex
	used int                  // guarded by mu
	by   map[netip.Prefix]int // guarded by mu
}

func newBudget(most int) *budget { return &budget{most: most, by: map[netip.Prefix]int{}} }

// take takes one for a client, false if there is none left for it.
func (b *budget) take(client netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	who := source(client)
	if b.used >= b.most || b.by[who] >= max(1, b.most/4) {
		return false
	}
	b.used++
	b.by[who]++
	return true
}

// give gives one back.
func (b *budget) give(client netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	who := source(client)
	b.used--
	if b.by[who]--; b.by[who] == 0 {
		delete(b.by, who)
	}
}
