package flow

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/packet"
)

// Phase is the stage of a flow's life, computed from its two sides.
type Phase uint8

// The phases. A flow is Established when it has proved itself: the side that began it has sent
// again after an answer, so it has received the answer. Before that its source address may be
// forged.
const (
	Opening Phase = iota
	Established
	Closing // TCP: both FINs sent, not both acknowledged
	Closed  // TCP: both FINs acknowledged
	Reset   // TCP: a valid RST; SCTP: ABORT or SHUTDOWN COMPLETE
	// other protocols than TCP: both sides were seen, and the one that began has not sent since
	Answered
)

// String returns the name of the phase.
func (p Phase) String() string {
	names := [...]string{"opening", "established", "closing", "closed", "reset", "answered"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// HalfOpen reports whether the flow has yet to prove itself. Engines keep such states apart, and
// evict only them.
func (p Phase) HalfOpen() bool { return p == Opening || p == Answered }

// Over reports whether the flow has ended.
func (p Phase) Over() bool { return p == Closed || p == Reset }

// Phase computes the phase.
func (s *State) Phase() Phase {
	a, b := &s.Sides[0], &s.Sides[1]
	either, both := a.Flags|b.Flags, a.Flags&b.Flags
	if s.Proto != packet.ProtoTCP {
		switch {
		case either&Rst != 0:
			return Reset
		case a.Flags&Proved != 0:
			return Established
		case both&Seen != 0:
			return Answered
		}
		return Opening
	}
	switch {
	case either&Rst != 0:
		return Reset
	case both&Fin != 0:
		if s.closed() {
			return Closed
		}
		return Closing
	case both&Seen == 0:
		return Opening
	case a.Flags&Proved != 0 && (s.Loose || both&Acked != 0):
		return Established
	}
	return Opening
}

// HalfOpen reports whether the flow has yet to prove itself.
func (s *State) HalfOpen() bool { return s.Phase().HalfOpen() }

// Lifetime returns how long the state lives after the last packet that counted.
func (s *State) Lifetime(t *Timeouts) time.Duration { return t.Of(s.Proto, s.Phase()) }

// Of returns the lifetime of states of a protocol in a phase.
func (t *Timeouts) Of(proto uint8, p Phase) time.Duration {
	switch proto {
	case packet.ProtoTCP:
		switch p {
		case Established:
			return t.Established
		case Closed:
			return t.Fin
		case Reset:
			return t.Rst
		}
		return t.Syn
	case packet.ProtoUDP, packet.ProtoUDPLite:
		if p == Established || p == Answered {
			return t.UDPReply
		}
		return t.UDP
	case packet.ProtoSCTP:
		switch p {
		case Established:
			return t.Established
		case Reset:
			return t.Rst
		}
		return t.Syn
	}
	return t.Short
}

// Last returns the time of the last packet that counted.
func (s *State) Last() int64 { return max(s.Sides[0].Last, s.Sides[1].Last) }

// Deadline returns the time after which the state has expired: a packet at a time above it does not
// find the state.
func (s *State) Deadline(t *Timeouts) int64 { return s.Last() + int64(s.Lifetime(t)) }
