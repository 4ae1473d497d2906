package enginetest

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// Packets that the stack routes from one card to another: section 5 of the page.

// card is the one that leads to an address that is not a pod's.
func (m *Translator) card(a netip.Addr) uint32 {
	if index, ok := m.Behind[a]; ok {
		return index
	}
	return m.Card
}

// ruled: a translation between these ends, as they are inside, is that of a rule with nat.
func (m *Translator) ruled(inner Ends) bool {
	_, from := m.Behind[inner.From.Addr()]
	_, to := m.Behind[inner.To.Addr()]
	return m.NAT != 0 && (from || to)
}

// held: the rules see a packet as it is on the wire, until one with nat has let it pass.
func (m *Translator) held(seen Ends, followed *Translation, called bool) bool {
	return called && m.ruled(seen) || followed != nil && followed.ruled
}

// hides: the sender hides from where its packet goes.
func (f *passed) hides() bool {
	if _, pod := f.Pods[f.ends.From.Addr()]; pod {
		return f.Hides
	}
	_, from := f.Behind[f.ends.From.Addr()]
	_, to := f.Behind[f.ends.To.Addr()]
	_, whole := f.Whole[f.ends.From.Addr()]
	if f.NAT != 0 {
		return from && f.v.Rule == f.NAT
	}
	return (f.HidesBehind || whole) && from && !to
}

// route carries a packet that has passed where it came in, and leaves by a card or is for the host.
// It was sent as wire.
func (f *passed) route(wire Ends, called bool, followed *Translation, recv uint32) Forwarded {
	if f.v.State == firewall.StateNew {
		delete(f.through, f.key())
	}
	switch {
	case called:
		f.untried = true
		if f.publish(wire) == nil {
			return Forwarded{}
		}
	case followed != nil:
		if f.v.State == firewall.StateNew && !followed.Source {
			f.markThrough()
		}
		f.touch(followed)
	case f.v.State == firewall.StateNew: // the client begins another flow
		f.drop(func(t *Translation) bool { return !t.Source && t.Inner == f.ends })
	}
	if f.ends.To.Addr() == f.Host {
		return Forwarded{Pass: true, Up: true}
	}
	v := f.Rules.Evaluate(&firewall.Input{Now: f.now, Hook: firewall.Hook{Dir: firewall.Out,
		Recv: recv, Xmit: f.card(f.ends.To.Addr())}}, f.pkt)
	if !v.Pass {
		f.drop(func(t *Translation) bool {
			return t.fresh && (t.Inner == f.ends || t.Inner == f.ends.Reversed())
		})
		return Forwarded{}
	}
	out := passed{Translator: f.Translator, ends: f.ends, pkt: f.pkt, now: f.now, v: v,
		state: f.Translator.state(f.ends, v)}
	if out.state == nil || out.state.Phase != flow.PhaseEstablished {
		for _, t := range f.Live {
			if !t.Source && t.Inner == out.ends {
				out.touch(t)
			}
		}
	}
	c := out.leave(false)
	c.Routed = true
	return c
}

// leaveWhole makes the translation of a packet that keeps its port. Another one with its tuple on
// the wire gives way, unless that is an established connection.
func (f *passed) leaveWhole(wire Ends) Forwarded {
	for _, t := range f.Live {
		same := t.Wire == wire || t.Wire == wire.Reversed()
		if same && t.Phase == flow.PhaseEstablished && t.Wire.Proto == packet.ProtoTCP {
			return Forwarded{}
		}
	}
	f.drop(func(t *Translation) bool { return t.Wire == wire || t.Wire == wire.Reversed() })
	f.add(wire, true)
	return Forwarded{Pass: true, Out: wire}
}

func (m *Translator) drop(gone func(*Translation) bool) {
	m.Live = slices.DeleteFunc(m.Live, gone)
}
