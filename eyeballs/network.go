package eyeballs

import (
	"net/netip"
	"sync"
	"time"
)

// network is what this host looked like at one moment.
type network struct {
	// v4 and v6 say that the family has an address that is neither loopback nor
	// link-local, which is what makes its records worth asking for (HEv3 4.1).
	v4, v6 bool
	// route4 and route6 are the source addresses towards the world, invalid
	// without a default route.
	route4, route6 netip.Addr
	id             networkID
	deprecated     map[netip.Addr]bool
	taken          time.Time

	mu      sync.Mutex
	sources map[netip.Addr]netip.Addr // guarded by mu
}

// networkID tells networks apart: a hash over addresses and routes of this host.
type networkID uint64

// fresh is how long a look at the network is believed: a change is noticed after
// this time at most.
const fresh = time.Second

var lastLook struct {
	sync.Mutex
	n *network
}

// current returns a view of the network that is at most fresh old.
func current() *network {
	lastLook.Lock()
	defer lastLook.Unlock()
	if n := lastLook.n; n != nil && time.Since(n.taken) < fresh {
		return n
	}
	lastLook.n = look()
	return lastLook.n
}

// world4 and world6 stand for any address far away: a root server's. Nothing is
// sent there; the kernel is only asked for the route.
var (
	world4 = netip.MustParseAddr("198.41.0.4")
	world6 = netip.MustParseAddr("2001:503:ba3e::2:30")
)

func look() *network {
	n := &network{taken: time.Now(), sources: map[netip.Addr]netip.Addr{}}
	n.route4, n.route6 = source(world4), source(world6)
	h := newHash()
	for _, route := range [2]netip.Addr{n.route4, n.route6} {
		h.add(route.AsSlice())
	}
	n.families(&h)
	n.id = networkID(h)
	return n
}

// hash is FNV-1a.
type hash uint64

func newHash() hash { return 14695981039346656037 }

func (h *hash) add(b []byte) {
	for _, c := range append(b, 0) {
		*h = (*h ^ hash(c)) * 1099511628211
	}
}

// source returns the address that this host would send from to dst, remembered
// as long as the view itself.
func (n *network) source(dst netip.Addr) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	src, ok := n.sources[dst]
	if !ok {
		src = source(dst)
		if len(n.sources) < 4096 {
			n.sources[dst] = src
		}
	}
	return src
}

// preferV4 is the family whose answer a race awaits: IPv6 if both lead to the
// world, else the one that does (HEv3 section 4.2).
func (n *network) preferV4() bool {
	if n.route6.IsValid() || n.route4.IsValid() {
		return !n.route6.IsValid()
	}
	return !n.v6 && n.v4
}
