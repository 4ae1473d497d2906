package eyeballs

import (
	"hash"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"
)

// hostView is a snapshot of this host: its families, its routes, and the network that it is on.
type hostView struct {
	// v4 and v6 mean that the family has an address that is neither loopback nor link-local. Only
	// then are its records useful (HEv3 section 4.1).
	v4, v6 bool
	// route4 and route6 are the source addresses towards the Internet, invalid without a default
	// route.
	route4, route6 netip.Addr
	id             networkID
	deprecated     map[netip.Addr]bool
	taken          time.Time

	mu      sync.Mutex
	sources map[netip.Addr]netip.Addr // guarded by mu
}

// networkID identifies a network: a hash over addresses and routes of this host.
type networkID uint64

// viewLifetime is how long a view is used: a change is noticed after this time at most.
const viewLifetime = time.Second

// maxSources bounds the source addresses that one view remembers.
const maxSources = 4096

// viewCache keeps the newest view of this host. Its zero value is ready for use. Concurrent dials
// share one view.
type viewCache struct {
	mu   sync.Mutex
	view *hostView // guarded by mu
}

// get returns a view that is at most viewLifetime old.
func (c *viewCache) get() *hostView {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil || time.Since(c.view.taken) >= viewLifetime {
		c.view = readHostView()
	}
	return c.view
}

// internet4 and internet6 stand for any address on the Internet: they are those of a root server.
// Nothing is sent there; they only select the route.
var (
	internet4 = netip.MustParseAddr("198.41.0.4")
	internet6 = netip.MustParseAddr("2001:503:ba3e::2:30")
)

func readHostView() *hostView {
	v := &hostView{taken: time.Now(), sources: map[netip.Addr]netip.Addr{}}
	v.route4, v.route6 = source(internet4), source(internet6)
	h := fnv.New64a()
	for _, route := range [2]netip.Addr{v.route4, v.route6} {
		hashField(h, route.AsSlice())
	}
	v.families(h)
	v.id = networkID(h.Sum64())
	return v
}

// hashField adds b to the hash, separated from what follows.
func hashField(h hash.Hash, b []byte) {
	h.Write(b)
	h.Write([]byte{0})
}

// source returns the address that this host would send from to dst. The view remembers it.
func (v *hostView) source(dst netip.Addr) netip.Addr {
	v.mu.Lock()
	defer v.mu.Unlock()
	src, ok := v.sources[dst]
	if !ok {
		src = source(dst)
		if len(v.sources) < maxSources {
			v.sources[dst] = src
		}
	}
	return src
}

// preferV4 reports whether IPv4 is the family whose answer a race waits for. It is IPv6 if both
// have a default route, else the family that has one (HEv3 section 4.2).
func (v *hostView) preferV4() bool {
	if v.route6.IsValid() || v.route4.IsValid() {
		return !v.route6.IsValid()
	}
	return !v.v6 && v.v4
}
