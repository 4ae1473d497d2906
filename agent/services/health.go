package services

import (
	"math"
	"net/netip"
	"time"

	"github.com/weirnet/weir/internal/forward"
)

// Health by what connects. A pod that accepts no connection, while the other pods of its service
// accept as many as would have been accepted by it if it were well, is passed over. A pod that
// accepts any is well.
//
// Clients are not trusted. What counts is what pods answer, never what clients send or leave out.
// SYNs that no pod answers (a wrong checksum, an option that the pod's kernel refuses) count for no
// one. The others have to accept connections that this pod, by its part of all flows, should have
// accepted. A client may have found out which of its ports lead where, and avoid a pod. So only the
// first connection of each part of the flows counts (forward.BackendCounters.Drawn). The flows are
// divided again, by another secret, before a pod is passed over, and when many parts have counted
// or are used up. So each connection that counts was a draw at random: a pod that is well accepts
// its share, and the client cannot change that.
//
// A probe lasts until about as many connections as are expected came to the pod that others would
// have accepted. That number follows from what these begin for each that they accept meanwhile. So
// SYNs that no pod answers make a probe longer, and end none. They meet all pods alike, since the
// flows are divided again when it begins.

// state is how a pod is used.
type state string

const (
	stateOK      state = "ok"
	statePassed  state = "passed-over" // gets no new flows
	stateProbing state = "probing"     // gets a few
)

// The numbers of health.
const (
	// expected is how many connections a pod should have accepted when it is suspected, and again
	// when it is passed over. A healthy pod accepts none of so many random flows once in 55 times
	// (e^4), and twice in a row once in 3,000. They are counted so that this holds for any number
	// of pods. Each connection that one of n accepts says by ln(n/(n-1)) that it was not another
	// one's turn, which is 1/n if they are many.
	expected = 4
	// fewest unanswered connections without which nothing is wrong
	fewest = 3
	// The pauses in which a pod is passed over double from the first to the last.
	firstPause, lastPause = 2 * time.Second, 2 * time.Minute
	// A pod that was well for so long begins with the first pause again.
	forgets = 5 * time.Minute
	// most connections of a probe: it outlasts a thousand SYNs that no pod answers for each
	// connection that one accepts
	maxProbe = 4096
)

// podHealth is what is known of one pod of a service.
type podHealth struct {
	state state
	last  forward.BackendCounters // at the last look
	// connections that began before the last look and since it accepted one last, and those that
	// began after the last look
	unanswered, fresh uint64
	missed            float64 // how many it should have accepted meanwhile, see expected
	suspected         bool    // and the flows were divided again
	until             time.Duration
	pause             time.Duration // 0: it was never passed over, or forgotten
	since             time.Duration // it is well since then
	probeEnd          uint64        // connections in all at which its probe ends
	from              uint64        // connections in all when it began
	// connections of the pods in use since then
	begun, accepted uint64
}

// mostDrawn is how many parts of the flows may have counted when they are divided again.
const mostDrawn = forward.FlowParts / 2

// A connection that no pod accepts uses its part up, too: the next one of it does not count. So
// the flows are also divided again when so many parts are used up, but not before turnPause after
// the last time: SYNs cost their sender little.
const (
	mostSeen  = forward.FlowParts * 3 / 4
	turnPause = 5 * time.Second
)

// health evaluates the pods of one service. It is deterministic: time and counters are passed in.
type health struct {
	pods map[netip.AddrPort]*podHealth
	// turn rises whenever the flows are to be divided again.
	turn   uint64
	turned time.Duration // when it rose last
	drawn  uint64        // how many parts have counted since
	// connections of all pods there have been
	total forward.BackendCounters
	// how many connections of pods that are well began for each that they accepted
	perAccepted float64
	// connections of the pods in use since the last look
	usedBegun, usedAccepted uint64
}

func newHealth() *health {
	return &health{pods: map[netip.AddrPort]*podHealth{}, perAccepted: 1}
}

// look takes what the pods have counted, once a second or so, and of how many parts a connection
// has begun since the flows were divided.
func (h *health) look(now time.Duration, counts map[netip.AddrPort]forward.BackendCounters,
	seen int) {
	h.follow(now, counts)
	turn := h.turn
	answered, drawn, used := h.count(counts)
	for at, p := range h.pods {
		if answered[at] {
			p.well(now)
			continue
		}
		if p.state == stateOK && used > 1 {
			p.missed += float64(drawn) * math.Log(float64(used)/float64(used-1))
		}
		h.evaluate(p, now, counts[at])
	}
	h.revive(now)
	usedUp := seen > mostSeen && now-h.turned >= turnPause
	if h.turn == turn && (h.drawn > mostDrawn || usedUp) {
		h.turn++
	}
	if h.turn != turn {
		h.drawn, h.turned = 0, now
	}
}

// follow keeps the pods those that there are.
func (h *health) follow(now time.Duration, counts map[netip.AddrPort]forward.BackendCounters) {
	for at := range h.pods {
		if _, there := counts[at]; !there {
			delete(h.pods, at)
		}
	}
	for at, n := range counts {
		if p := h.pods[at]; p == nil || n.Begun < p.last.Begun { // new, or another one
			h.pods[at] = &podHealth{state: stateOK, last: n, since: now}
		}
	}
}

// count returns which pods have accepted a connection since the last look. It also returns how many
// of those that pods in use have accepted were drawn, and how many pods are in use.
func (h *health) count(counts map[netip.AddrPort]forward.BackendCounters) (
	answered map[netip.AddrPort]bool, drawn uint64, used int) {
	answered = map[netip.AddrPort]bool{}
	var begun, taken uint64
	h.usedBegun, h.usedAccepted = 0, 0
	for at, p := range h.pods {
		n := counts[at]
		accepted := n.Accepted - p.last.Accepted
		answered[at] = accepted > 0
		h.total.Begun += n.Begun - p.last.Begun
		h.total.Accepted += accepted
		h.total.Refused += n.Refused - p.last.Refused
		h.drawn += n.Drawn - p.last.Drawn
		if p.state == stateOK {
			used++
			drawn += n.Drawn - p.last.Drawn
			h.usedBegun += n.Begun - p.last.Begun
			h.usedAccepted += accepted
			if accepted > 0 {
				begun += n.Begun - p.last.Begun
				taken += accepted
			}
		}
		// An answer needs time: what began since the last look is due at the next one.
		p.unanswered += p.fresh
		p.fresh = n.Begun - p.last.Begun
		p.last = n
	}
	if taken > 0 {
		h.perAccepted = max(1, float64(begun)/float64(taken))
	}
	return answered, drawn, used
}

// well notes that a pod has accepted a connection.
func (p *podHealth) well(now time.Duration) {
	p.unanswered, p.missed, p.suspected = 0, 0, false
	if p.state != stateOK {
		p.state, p.since = stateOK, now
	} else if now-p.since > forgets {
		p.pause = 0
	}
}

// evaluate looks at a pod that has accepted nothing since the last look.
func (h *health) evaluate(p *podHealth, now time.Duration, n forward.BackendCounters) {
	switch p.state {
	case stateOK:
		if p.missed < expected || p.unanswered < fewest {
			return
		}
		p.unanswered, p.missed = 0, 0
		if !p.suspected {
			p.suspected = true
			h.turn++
			return
		}
		p.passOver(now)
	case statePassed:
		if now < p.until {
			return
		}
		p.state, p.unanswered, p.fresh = stateProbing, 0, 0
		p.from, p.begun, p.accepted = n.Begun, 0, 0
		p.probeEnd = n.Begun + uint64(min(expected*h.perAccepted, maxProbe))
		h.turn++
	case stateProbing:
		p.begun += h.usedBegun
		p.accepted += h.usedAccepted
		if n.Begun < p.probeEnd || p.fresh > 0 { // the last answers may be under way
			return
		}
		if end := p.from + p.probeLength(n.Begun-p.from); n.Begun < end {
			p.probeEnd = end
			return
		}
		p.passOver(now)
	}
}

// probeLength returns how many connections of a probe, of which so many have begun, say as much as
// expected ones that others would have accepted. While these accept none it doubles.
func (p *podHealth) probeLength(begun uint64) uint64 {
	enough := 2 * float64(begun)
	if p.accepted > 0 {
		enough = expected * max(1, float64(p.begun)/float64(p.accepted))
	}
	return uint64(min(enough, maxProbe))
}

func (p *podHealth) passOver(now time.Duration) {
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	p.state, p.until, p.suspected = statePassed, now+p.pause, false
}

// revive uses all pods when none is left in use: it may be the clients.
func (h *health) revive(now time.Duration) {
	for _, p := range h.pods {
		if p.state == stateOK {
			return
		}
	}
	for _, p := range h.pods {
		p.state, p.since, p.unanswered, p.missed, p.suspected = stateOK, now, 0, 0, false
	}
}
