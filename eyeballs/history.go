package eyeballs

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of a History.
const (
	// downTime is how long an address that kept a dial waiting is tried last. Dials that avoid the
	// address do not extend it, so the usual order comes back.
	downTime     = time.Minute
	maxHosts     = 2048
	maxHostAddrs = 16
	rttSmoothing = 4 // a new RTT counts one part in four
)

// History remembers how earlier dials went. It belongs to one network: when the addresses of this
// host change, it forgets everything (HEv3 section 5.3). Its zero value is ready for use. It is
// safe for concurrent use and must not be copied.
type History struct {
	views viewCache

	mu      sync.Mutex
	network networkID             // guarded by mu, as all below
	hosts   map[string]*hostEntry // by host:port as dialled
}

// hostEntry is what earlier dials of one host:port showed.
type hostEntry struct {
	addrs []addrEntry
	// downV4 and downV6 are the times until which a whole family counts as down: its addresses kept
	// a dial waiting.
	downV4, downV6 time.Time
	// unresponsiveV4 and unresponsiveV6 are the times until which no dial waits for the family's
	// addresses: they were not known when an earlier race was over.
	unresponsiveV4, unresponsiveV6 time.Time
}

// addrEntry is what earlier dials showed about one address.
type addrEntry struct {
	addr netip.Addr
	rtt  time.Duration // smoothed, 0 = unknown
	down time.Time     // until when it counts as down; zero if it has won a race since
}

// Forget empties the history.
func (h *History) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts = nil
}

// lookup returns a copy of what is known about host:port on the network. ok is false if nothing is.
func (h *History) lookup(id networkID, address string) (e hostEntry, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.network != id {
		h.network, h.hosts = id, nil
		return hostEntry{}, false
	}
	stored := h.hosts[address]
	if stored == nil {
		return hostEntry{}, false
	}
	e = *stored
	e.addrs = append([]addrEntry(nil), stored.addrs...)
	return e, true
}

// result is what one won race showed.
type result struct {
	network  networkID
	address  string // host:port as dialled
	outcomes []outcome
	// unresponsiveV4 and unresponsiveV6 mean that the addresses of the family were not known when
	// the race was over.
	unresponsiveV4, unresponsiveV6 bool
	at                             time.Time
}

// outcome is what one attempt of a won race showed.
type outcome struct {
	addr netip.Addr
	won  bool
	rtt  time.Duration // time to connect, 0 if it did not
	down bool          // it kept the dial waiting
}

// record stores what a race showed, unless the network changed during the dial.
func (h *History) record(r *result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.network != r.network {
		return
	}
	e := h.entryLocked(r.address)
	until := r.at.Add(downTime)
	var up, down [2]bool
	for _, o := range r.outcomes {
		family := 1
		if o.addr.Is4() {
			family = 0
		}
		a := e.entry(o.addr)
		if o.rtt > 0 {
			if a.rtt == 0 {
				a.rtt = o.rtt
			}
			a.rtt += (o.rtt - a.rtt) / rttSmoothing
		}
		switch {
		case o.won:
			a.down, up[family] = time.Time{}, true
		case o.down:
			a.down, down[family] = until, true
		}
	}
	for family, t := range [2]*time.Time{&e.downV4, &e.downV6} {
		switch {
		case up[family]:
			*t = time.Time{}
		case down[family]:
			*t = until
		}
	}
	e.unresponsiveV4, e.unresponsiveV6 = time.Time{}, time.Time{}
	if r.unresponsiveV4 {
		e.unresponsiveV4 = until
	}
	if r.unresponsiveV6 {
		e.unresponsiveV6 = until
	}
}

// entryLocked returns the entry of host:port. It makes one if there is none, and evicts any other
// if the history is full.
func (h *History) entryLocked(address string) *hostEntry {
	if e := h.hosts[address]; e != nil {
		return e
	}
	if h.hosts == nil {
		h.hosts = map[string]*hostEntry{}
	}
	for old := range h.hosts {
		if len(h.hosts) < maxHosts {
			break
		}
		delete(h.hosts, old)
	}
	e := &hostEntry{}
	h.hosts[address] = e
	return e
}

// entry returns the entry of an address. It makes one if there is none, and evicts the oldest if
// there are maxHostAddrs.
func (e *hostEntry) entry(a netip.Addr) *addrEntry {
	for i := range e.addrs {
		if e.addrs[i].addr == a {
			return &e.addrs[i]
		}
	}
	if len(e.addrs) == maxHostAddrs {
		copy(e.addrs, e.addrs[1:])
		e.addrs = e.addrs[:maxHostAddrs-1]
	}
	e.addrs = append(e.addrs, addrEntry{addr: a})
	return &e.addrs[len(e.addrs)-1]
}

// find returns the entry of an address, the zero value if there is none.
func (e *hostEntry) find(a netip.Addr) addrEntry {
	for i := range e.addrs {
		if e.addrs[i].addr == a {
			return e.addrs[i]
		}
	}
	return addrEntry{}
}

// isDown reports whether an address should be tried last. An unknown address counts as down if its
// family does.
func (e *hostEntry) isDown(a netip.Addr, now time.Time) bool {
	k := e.find(a)
	if !k.addr.IsValid() {
		return e.familyDown(a.Is4(), now)
	}
	return now.Before(k.down)
}

func (e *hostEntry) familyDown(v4 bool, now time.Time) bool {
	if v4 {
		return now.Before(e.downV4)
	}
	return now.Before(e.downV6)
}

// waitFor reports whether a dial should wait for the addresses of a family.
func (e *hostEntry) waitFor(v4 bool, now time.Time) bool {
	unresponsive := e.unresponsiveV6
	if v4 {
		unresponsive = e.unresponsiveV4
	}
	return !now.Before(unresponsive) && !e.familyDown(v4, now)
}

// rtt returns the round-trip time that the sort uses for an address, 0 if it is unknown. An address
// that kept a dial waiting has none until it wins a race again: what was measured before says
// nothing about it any more.
func (e *hostEntry) rtt(a netip.Addr) time.Duration {
	k := e.find(a)
	if !k.down.IsZero() {
		return 0
	}
	return k.rtt
}

// attemptDelay returns the Connection Attempt Delay after an attempt to an address, 0 if no
// round-trip time is known. That is about when TCP would retransmit its first packet if it knew
// that time (RFC 6298 section 2.2: RTT + 4 * RTT/2).
func (e *hostEntry) attemptDelay(a netip.Addr) time.Duration {
	return 3 * e.find(a).rtt
}
