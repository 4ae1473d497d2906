package overlay

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// keepaliveSize is what an empty message has: more than that is a handshake or data.
	keepaliveSize = 32
	// longestQuiet is the longest silence of a peer that works: WireGuard answers data with an
	// empty message after 10 s (KEEPALIVE_TIMEOUT) if it has nothing else to send.
	longestQuiet = 11 * time.Second
	// lostAfter is when WireGuard gives a session without answers up and begins a handshake
	// (KEEPALIVE_TIMEOUT and REKEY_TIMEOUT).
	lostAfter = 15 * time.Second
	// promptAnswers is how many samples with data in both directions show that a peer answers at
	// once.
	promptAnswers = 10
)

// kernelPath decides which endpoint a peer of the kernel's WireGuard has, from what its counters
// say. Time is passed in. The kernel sends to one endpoint and follows the source of what a peer
// sends, so nothing is to be done as long as the peer is heard.
//
// A peer that does not answer what was sent to it within its time for an answer gets the next
// address. Others that do not answer get 300 ms each from the first thing that was sent there. TCP
// repeats itself more and more seldom, and what it sends has to meet each of them. Then the peer
// has the address again where it was heard last. The peer may just have nothing to say. So an
// answer from the old address, or from none, doubles the time for an answer, up to what WireGuard
// guarantees. A peer that answers at once has the shortest again.
type kernelPath struct {
	candidates []netip.AddrPort
	begun      bool
	last       pathSample     // the one before
	lastHeard  netip.AddrPort // where the peer was heard last, or what it began with
	tries      int            // addresses tried since the peer was heard
	since      time.Duration  // since when it has not answered
	sentHere   bool           // something was sent to this address,
	here       time.Duration  // first at this time
	answers    int            // samples in a row with data in both directions
	answerTime time.Duration
	moves      uint64 // how often the peer was heard at another address than before
}

// pathSample is what is known of a peer at some time.
type pathSample struct {
	received, sent uint64 // bytes
	endpoint       netip.AddrPort
	session        bool // the last handshake is not too old for one
	// reports whether the host has a route to an address
	reachable func(netip.AddrPort) bool
}

// step takes a sample, and returns the endpoint that the peer is to get, if it is to get another.
func (k *kernelPath) step(now time.Duration, s pathSample) (to netip.AddrPort, move bool) {
	if !k.begun {
		k.begun, k.lastHeard, k.answerTime = true, s.endpoint, quiet
	}
	last := k.last
	k.last = s
	sent := s.sent-last.sent > keepaliveSize
	if s.received != last.received {
		k.hear(s, sent, s.received-last.received > keepaliveSize)
		return to, false
	}
	k.answers = 0
	if !k.sentHere && sent {
		k.sentHere, k.here = true, now
		if k.tries == 0 {
			k.since = now
		}
	}
	wait := k.answerTime
	if s.endpoint != k.lastHeard {
		wait = quiet
	}
	switch {
	case !s.endpoint.IsValid() || !s.reachable(s.endpoint):
		// what cannot be sent is not counted as sent
	case !k.sentHere || now-k.here < wait:
		return to, false
	}
	return k.next(now, s)
}

// hear takes a sample with bytes of the peer.
func (k *kernelPath) hear(s pathSample, sent, data bool) {
	switch {
	case s.endpoint != k.lastHeard:
		if k.lastHeard.IsValid() {
			k.moves++
		}
		k.answerTime = quiet
	case k.tries > 0: // it was there all the time
		k.answerTime = min(2*k.answerTime, longestQuiet)
	}
	k.lastHeard, k.tries, k.sentHere = s.endpoint, 0, false
	if k.answers++; !sent || !data {
		k.answers = 0
	}
	if k.answers >= promptAnswers {
		k.answerTime = quiet
	}
}

// ring are the addresses that are tried one after the other.
func (k *kernelPath) ring() (all []netip.AddrPort) {
	if k.lastHeard.IsValid() {
		all = append(all, k.lastHeard)
	}
	for _, c := range k.candidates {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// next returns the next address that the host has a route to, if there is one.
func (k *kernelPath) next(now time.Duration, s pathSample) (to netip.AddrPort, move bool) {
	ring := k.ring()
	at := slices.Index(ring, s.endpoint)
	k.sentHere = false // at the next address, until something is sent there
	alive := s.session && now-k.since < lostAfter
	for i := 1; i <= len(ring); i++ {
		to = ring[(at+i)%len(ring)]
		if to == s.endpoint || !s.reachable(to) {
			continue
		}
		if k.tries++; to == k.lastHeard && alive { // all were tried
			k.answerTime = min(2*k.answerTime, longestQuiet)
		}
		return to, true
	}
	return to, false
}

// hasChoice reports whether there is another address than that in use.
func (k *kernelPath) hasChoice() bool { return len(k.ring()) > 1 || !k.begun }
