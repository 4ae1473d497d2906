package dns

import (
	"sync"
	"time"
)

// Bounds of the cache.
const (
	maxEntries     = 4096
	maxTTL         = time.Hour
	maxNegativeTTL = 5 * time.Minute
)

type cacheKey struct {
	name string
	t    Type
}

type cacheEntry struct {
	answer Answer
	until  time.Time
}

// cache keeps answers under the name that the caller used, whichever search domain completed it.
// The zero value is ready for use.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]cacheEntry // guarded by mu
}

// get returns an answer whose TTL is not over.
func (c *cache) get(name string, t Type, now time.Time) (Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[cacheKey{name, t}]
	if !ok {
		return Answer{}, false
	}
	left := e.until.Sub(now)
	if left <= 0 {
		delete(c.entries, cacheKey{name, t})
		return Answer{}, false
	}
	e.answer.TTL, e.answer.From = left, "cache"
	return e.answer, true
}

// put stores an answer for its TTL, within the bounds. An answer without a TTL is not stored.
func (c *cache) put(name string, a Answer, now time.Time) {
	limit := maxTTL
	if a.Err != nil {
		limit = maxNegativeTTL
	}
	ttl := min(a.TTL, limit)
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[cacheKey]cacheEntry{}
	}
	if len(c.entries) >= maxEntries {
		c.evictLocked(now)
	}
	c.entries[cacheKey{name, a.Type}] = cacheEntry{a, now.Add(ttl)}
}

// evictLocked deletes at least one entry. It looks at 16 entries in the random order of the map,
// and deletes the first and all that have expired.
func (c *cache) evictLocked(now time.Time) {
	seen := 0
	for k, e := range c.entries {
		if seen == 0 || !now.Before(e.until) {
			delete(c.entries, k)
		}
		if seen++; seen == 16 {
			return
		}
	}
}

func (c *cache) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = nil
}
