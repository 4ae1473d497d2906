package enginetest

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// Flows of one client that would be one in a pod.

// stateBetween returns the state of a flow, in whichever direction it began, nil for none.
func (m *Translator) stateBetween(e Ends, now time.Duration) *modelState {
	for _, s := range m.Rules.states {
		from, to := s.key.DisplayEnds(s.from)
		is := Ends{s.Proto, from, to}
		if (is == e || is == e.Reversed()) && !m.Rules.expired(s, now) {
			return s
		}
	}
	return nil
}

func (s *modelState) over() bool {
	phase := s.Phase()
	return phase == flow.PhaseClosed || phase == flow.PhaseReset
}

// isThrough: the flow of a state came through a published port.
func (m *Translator) isThrough(s *modelState) bool {
	from, to := s.key.DisplayEnds(s.from)
	return m.through[throughKey{Ends{s.Proto, from, to}, s.created}]
}

// clashes: a packet that begins a flow through a published port would have the ends of another one
// in the pod.
func (m *Translator) clashes(e Ends, now time.Duration, seg flow.Segment) bool {
	for _, t := range m.Live {
		over := t.Phase == flow.PhaseClosed || t.Phase == flow.PhaseReset
		if (t.Inner == e || t.Inner == e.Reversed()) && !over {
			return true
		}
	}
	s := m.stateBetween(e, now)
	if s == nil || s.over() {
		return false
	}
	return !m.isThrough(s) || e.Proto == packet.ProtoTCP && bareSYN(seg) && !s.HalfOpen()
}

func bareSYN(seg flow.Segment) bool {
	return seg.Flags&(packet.FlagSYN|packet.FlagACK) == packet.FlagSYN
}

// move gives a packet the source port that the engine has chosen, if it clashes. It reports false
// if that clashes, too.
func (m *Translator) move(e Ends, now time.Duration, seg flow.Segment) (Ends, bool) {
	if !m.clashes(e, now, seg) {
		return e, true
	}
	e.From = netip.AddrPortFrom(e.From.Addr(), m.Chosen)
	return e, !m.clashes(e, now, seg)
}

// strays: a packet to a pod itself has the ends of a flow through a published port.
func (m *Translator) strays(e Ends, now time.Duration, seg flow.Segment) bool {
	s := m.stateBetween(e, now)
	if s == nil || s.over() || !m.isThrough(s) {
		return false
	}
	if from, _ := s.key.DisplayEnds(s.from); from != e.From {
		return false
	}
	a, b := &s.Sides[0], &s.Sides[1]
	again := e.Proto == packet.ProtoTCP && bareSYN(seg) && a.Flags&flow.SideSyn != 0 &&
		b.Flags&flow.SideSeen == 0 && seg.Seq != a.Start
	return !again
}
