package udp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// routes remembers the destinations to which super packets failed. Refusals depend on the way a
// packet takes: the driver's checksum offload, an IPsec policy, the path MTU. They cannot be probed
// beforehand.
type routes struct {
	used atomic.Bool // whether m holds anything: spares the lock while nothing ever failed
	mu   sync.RWMutex
	m    map[netip.Addr]refusal
}

// refusal says that segments larger than max bytes do not go.
type refusal struct {
	max   int
	until time.Time
}

const (
	routeLife  = 10 * time.Minute // afterwards the route is tried again
	routeLimit = 4096             // refusals remembered; a full table starts anew

	// A refusal at or below this size says that the route takes no super packets at all. Above, the
	// segments may just have been larger than the path MTU. It is the smallest MTU of IPv6.
	routeSmall = 1280
)

// max returns the largest segment that may go to a as a part of a super packet.
func (r *routes) max(a netip.Addr) int {
	if !r.used.Load() {
		return MaxPayload
	}
	r.mu.RLock()
	f, ok := r.m[a]
	r.mu.RUnlock()
	if !ok || time.Now().After(f.until) {
		return MaxPayload
	}
	return f.max
}

// refuse notes that a super packet with segments of the given size failed; all says that the size
// was not the reason.
func (r *routes) refuse(a netip.Addr, size int, all bool) {
	limit := size - 1
	if all || size <= routeSmall {
		limit = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil || len(r.m) >= routeLimit {
		r.m = map[netip.Addr]refusal{}
	}
	r.m[a] = refusal{max: limit, until: time.Now().Add(routeLife)}
	r.used.Store(true)
}

// forget takes a refusal back: the datagrams failed one by one as well.
func (r *routes) forget(a netip.Addr) {
	if !r.used.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, a)
	r.used.Store(len(r.m) > 0)
}
