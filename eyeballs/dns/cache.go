package dns

import (
	"sync"
	"time"

	"github.com/weirnet/weir/eyeballs/race"
)

// Bounds of the cache.
const (
	maxEntries     = 4096
	maxTTL         = time.Hour
	maxNegativeTTL = 5 * time.Minute
)

type cacheKey struct {
	name string
	t    race.Types
}

type cacheEntry struct {
	answer Answer
	until  time.Time
}

// cache keeps answers under the name that the caller used, whichever search
// domain completed it.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]cacheEntry // guarded by mu
}

func (c *cache) get(name string, t race.Types, now time.Time) (Answer, bool) {
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

// evictLocked makes room: of the first entries that the map hands out, in random
// order, it drops the expired ones, and one in any case.
func (c *cache) evictLocked(now time.Time) {
	looked := 0
	for k, e := range c.entries {
		if looked == 0 || !now.Before(e.until) {
			delete(c.entries, k)
		}
		if looked++; looked == 16 {
			return
		}
	}
}

func (c *cache) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = nil
}
