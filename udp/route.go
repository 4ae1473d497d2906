package udp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// routes remembers the destinations to which GSO packets failed. Refusals depend on the path of a
// packet: the driver's checksum offload, an IPsec policy, the path MTU. They cannot be probed
// beforehand.
type routes struct {
	used atomic.Bool // whether m holds anything: saves the lock while nothing has failed
	mu   sync.RWMutex
	m    map[netip.Addr]refusal
}

// refusal means that a route refuses segments larger than max bytes.
type refusal struct {
	max   int
	until time.Time
}

const (
	routeLife  = 10 * time.Minute // afterwards the route is tried again
	routeLimit = 4096             // refusals remembered; a full table is emptied

	// A refusal at or below this size means that the route takes no GSO packets at all. Above, the
	// segments may just have been larger than the path MTU. It is the smallest MTU of IPv6.
	routeSmall = 1280
)

// max returns the largest segment that may be sent to a as a part of a GSO packet.
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

// refuse records that a GSO packet with segments of the given size failed; all means that the size
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

// forget removes a refusal: the datagrams failed one by one as well.
func (r *routes) forget(a netip.Addr) {
	if !r.used.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, a)
	r.used.Store(len(r.m) > 0)
}
