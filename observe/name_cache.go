package observe

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// resolvedMost bounds the addresses whose names are kept.
	resolvedMost = 8192
	// resolvedLife is how long a name, or the lack of one, is kept.
	resolvedLife = 5 * time.Minute
	// lookupsMost is how many look-ups run at the same time. When the limit is reached, an address
	// is looked up the next time that it is seen.
	lookupsMost = 16
	// lookupTime bounds one look-up.
	lookupTime = 3 * time.Second
)

// NameCache has the names of addresses that look-ups have found so far. It never waits for one: a
// new address has no name yet. Its methods may be called from any goroutine.
type NameCache struct {
	ctx    context.Context
	lookup func(context.Context, netip.Addr) (string, error)

	mu      sync.Mutex
	names   map[netip.Addr]resolved // guarded by mu
	running int                     // guarded by mu
}

type resolved struct {
	name  string    // "" while nothing was found
	until time.Time // when it is looked up again
}

// NewNameCache makes a NameCache that begins look-ups until ctx ends.
func NewNameCache(ctx context.Context,
	lookup func(context.Context, netip.Addr) (string, error)) *NameCache {
	return &NameCache{ctx: ctx, lookup: lookup, names: map[netip.Addr]resolved{}}
}

// Name returns the name of an address if it is known, and starts a look-up if it is not.
func (r *NameCache) Name(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.names[a]
	if ok && now.Before(known.until) || r.running >= lookupsMost || r.ctx.Err() != nil {
		return known.name
	}
	if !ok && len(r.names) >= resolvedMost {
		r.forgetLocked()
	}
	r.names[a] = resolved{known.name, now.Add(resolvedLife)}
	r.running++
	go r.find(a)
	return known.name
}

// forgetLocked drops the names of half of the addresses.
func (r *NameCache) forgetLocked() {
	for a := range r.names { // in random order
		if delete(r.names, a); len(r.names) <= resolvedMost/2 {
			return
		}
	}
}

func (r *NameCache) find(a netip.Addr) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupTime)
	defer cancel()
	name, err := r.lookup(ctx, a)
	if err != nil {
		name = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.names[a] = resolved{name, time.Now().Add(resolvedLife)}
}

// SetNames fills in the names of an event. It keeps the name of a pod and replaces that of a table.
func (r *NameCache) SetNames(e *Event) {
	for _, end := range []struct {
		name *string
		addr netip.Addr
	}{{&e.From, e.Src.Addr()}, {&e.To, e.Dst.Addr()}} {
		if *end.name != "" && !strings.HasPrefix(*end.name, "table:") {
			continue
		}
		if found := r.Name(end.addr); found != "" {
			*end.name = found
		}
	}
}
