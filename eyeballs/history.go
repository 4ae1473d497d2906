package eyeballs

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of a History.
const (
	// remember is how long an address that kept a dial waiting is tried last. It
	// is not extended by dials that avoided it, so the usual order comes back.
	remember     = time.Minute
	maxPlaces    = 2048
	maxPerPlace  = 16
	rttSmoothing = 4 // a new RTT counts one part in four
)

// History remembers how earlier dials went. It belongs to one network: when this
// host's addresses change, it forgets everything (HEv3 section 5.3). Its zero
// value is ready for use; it is safe for concurrent use.
type History struct {
	mu      sync.Mutex
	network networkID         // guarded by mu, as all below
	places  map[string]*place // by host:port as dialled
}

// place is what is known of one destination.
type place struct {
	addrs  []known
	winner netip.Addr
	// deadV4 and deadV6 are when to forget that a whole family did not answer,
	// muteV4 and muteV6 that its addresses could not be had in time.
	deadV4, deadV6, muteV4, muteV6 time.Time
}

type known struct {
	addr netip.Addr
	rtt  time.Duration // smoothed, 0 = unknown
	dead time.Time     // when to forget that it is dead
}

// Forget empties the history.
func (h *History) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places = nil
}

// recall returns a copy of what is known of a place on the network.
func (h *History) recall(id networkID, where string) (place, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.network != id {
		h.network, h.places = id, nil
		return place{}, false
	}
	p := h.places[where]
	if p == nil {
		return place{}, false
	}
	c := *p
	c.addrs = append([]known(nil), p.addrs...)
	return c, true
}

// outcome is what one attempt of a dial that was won taught.
type outcome struct {
	addr netip.Addr
	won  bool
	rtt  time.Duration // time to connect, 0 if it did not
	dead bool          // it kept the dial waiting
}

// record files what a dial taught. muteV4 and muteV6 say that the family's
// addresses were not known when the race was over.
func (h *History) record(id networkID, where string, outcomes []outcome, muteV4, muteV6 bool,
	now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.network != id {
		return // the network changed during the dial
	}
	p := h.places[where]
	if p == nil {
		if h.places == nil {
			h.places = map[string]*place{}
		}
		for old := range h.places {
			if len(h.places) < maxPlaces {
				break
			}
			delete(h.places, old)
		}
		p = &place{}
		h.places[where] = p
	}
	var alive, dead [2]bool
	for _, o := range outcomes {
		family := 1
		if o.addr.Is4() {
			family = 0
		}
		k := p.find(o.addr)
		if o.won {
			p.winner = o.addr
		}
		if o.rtt > 0 {
			if k.rtt == 0 {
				k.rtt = o.rtt
			}
			k.rtt += (o.rtt - k.rtt) / rttSmoothing
		}
		switch {
		case o.won:
			k.dead, alive[family] = time.Time{}, true
		case o.dead:
			k.dead, dead[family] = now.Add(remember), true
		}
	}
	for family, until := range [2]*time.Time{&p.deadV4, &p.deadV6} {
		switch {
		case alive[family]:
			*until = time.Time{}
		case dead[family]:
			*until = now.Add(remember)
		}
	}
	p.muteV4, p.muteV6 = time.Time{}, time.Time{}
	if muteV4 {
		p.muteV4 = now.Add(remember)
	}
	if muteV6 {
		p.muteV6 = now.Add(remember)
	}
}

// find returns the entry of an address, making one in the place of the oldest.
func (p *place) find(a netip.Addr) *known {
	for i := range p.addrs {
		if p.addrs[i].addr == a {
			return &p.addrs[i]
		}
	}
	if len(p.addrs) == maxPerPlace {
		copy(p.addrs, p.addrs[1:])
		p.addrs = p.addrs[:maxPerPlace-1]
	}
	p.addrs = append(p.addrs, known{addr: a})
	return &p.addrs[len(p.addrs)-1]
}

// look is find without making anything.
func (p *place) look(a netip.Addr) known {
	for i := range p.addrs {
		if p.addrs[i].addr == a {
			return p.addrs[i]
		}
	}
	return known{}
}

// avoid reports whether an address should be tried last. An address that nothing
// is known of shares the fate of its family.
func (p *place) avoid(a netip.Addr, now time.Time) bool {
	k := p.look(a)
	if !k.addr.IsValid() {
		return p.familyDead(a.Is4(), now)
	}
	return now.Before(k.dead)
}

func (p *place) familyDead(v4 bool, now time.Time) bool {
	if v4 {
		return now.Before(p.deadV4)
	}
	return now.Before(p.deadV6)
}

// await reports whether the answer about a family is worth waiting for.
func (p *place) await(v4 bool, now time.Time) bool {
	mute := p.muteV6
	if v4 {
		mute = p.muteV4
	}
	return !now.Before(mute) && !p.familyDead(v4, now)
}

// rank orders addresses between rules 8 and 9 of RFC 6724: the last winner, then
// those that were connected to, the fastest first (RFC 8305 section 4).
func (p *place) rank(a netip.Addr) int {
	if a == p.winner {
		return -2
	}
	if k := p.look(a); k.rtt > 0 {
		return -1
	}
	return 0
}

// attemptDelay is the Connection Attempt Delay after an attempt to a: about when
// its first packet would be sent again if the round-trip time were known to TCP
// (RFC 6298 section 2.2: RTT + 4 * RTT/2).
func (p *place) attemptDelay(a netip.Addr) time.Duration {
	return 3 * p.look(a).rtt
}
