package flow

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/packet"
)

// Phase is the stage of a flow, computed from its two sides.
type Phase uint8

// The phases. A flow is established when the side that began it has sent again after an answer, and
// so has received the answer. Before that, its source address may be forged.
const (
	PhaseOpening Phase = iota
	PhaseEstablished
	PhaseClosing // TCP: both FINs sent, not both acknowledged
	PhaseClosed  // TCP: both FINs acknowledged
	PhaseReset   // TCP: a valid RST; SCTP: ABORT or SHUTDOWN COMPLETE
	// other protocols than TCP: both sides were seen, and the side that began has not sent since
	PhaseAnswered
)

// String returns the name of the phase.
func (p Phase) String() string {
	names := [...]string{"opening", "established", "closing", "closed", "reset", "answered"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// HalfOpen reports whether the phase is opening or answered. Engines keep such states apart, and
// evict only them.
func (p Phase) HalfOpen() bool { return p == PhaseOpening || p == PhaseAnswered }

// Over reports whether the flow has ended.
func (p Phase) Over() bool { return p == PhaseClosed || p == PhaseReset }

// Phase computes the phase.
func (s *State) Phase() Phase {
	a, b := &s.Sides[0], &s.Sides[1]
	either, both := a.Flags|b.Flags, a.Flags&b.Flags
	if s.Proto != packet.ProtoTCP {
		switch {
		case either&SideRst != 0:
			return PhaseReset
		case a.Flags&SideProved != 0:
			return PhaseEstablished
		case both&SideSeen != 0:
			return PhaseAnswered
		}
		return PhaseOpening
	}
	switch {
	case either&SideRst != 0:
		return PhaseReset
	case both&SideFin != 0:
		if s.closed() {
			return PhaseClosed
		}
		return PhaseClosing
	case both&SideSeen == 0:
		return PhaseOpening
	case a.Flags&SideProved != 0 && (s.Loose || both&SideAcked != 0):
		return PhaseEstablished
	}
	return PhaseOpening
}

// HalfOpen reports whether the flow is opening or answered.
func (s *State) HalfOpen() bool { return s.Phase().HalfOpen() }

// Lifetime returns how long the state lives after the last packet that counted.
func (s *State) Lifetime(t *Timeouts) time.Duration { return t.Of(s.Proto, s.Phase()) }

// Of returns the lifetime of states of a protocol in a phase.
func (t *Timeouts) Of(proto packet.Proto, p Phase) time.Duration {
	switch proto {
	case packet.ProtoTCP:
		switch p {
		case PhaseEstablished:
			return t.Established
		case PhaseClosed:
			return t.Fin
		case PhaseReset:
			return t.Rst
		}
		return t.Syn
	case packet.ProtoUDP, packet.ProtoUDPLite:
		if p == PhaseEstablished || p == PhaseAnswered {
			return t.UDPReply
		}
		return t.UDP
	case packet.ProtoSCTP:
		switch p {
		case PhaseEstablished:
			return t.Established
		case PhaseReset:
			return t.Rst
		}
		return t.Syn
	}
	return t.Short
}

// Last returns the time of the last packet that counted.
func (s *State) Last() time.Duration { return max(s.Sides[0].Last, s.Sides[1].Last) }

// Deadline returns the time after which the state has expired: a later packet does not find it.
func (s *State) Deadline(t *Timeouts) time.Duration { return s.Last() + s.Lifetime(t) }
