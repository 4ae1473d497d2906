package enginetest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// Translator is the reference model of translations, docs/design/0004-containers.md section 4: slow
// and obvious. It knows packets of IPv4 that go straight from a card or a pod to a pod or a card,
// evaluated by the reference model of the rules.
type Translator struct {
	Rules     *Model
	Host      netip.Addr            // the card's address
	Card      uint32                // index of the card
	Pods      map[netip.Addr]uint32 // indexes of the pods' interfaces
	Published map[Port]netip.AddrPort
	// Services says where a packet to a service goes, and whether it is one to a service: to an
	// invalid end if the service has no pod. nil: there are none.
	Services func(Ends) (to netip.AddrPort, is bool)
	Hides    bool // pods hide behind the host's address
	// Behind are other hosts by the cards that lead to them, and whether they hide, too.
	Behind      map[netip.Addr]uint32
	HidesBehind bool
	// Whole are addresses that lead to another host with all ports, by that host.
	Whole map[netip.Addr]netip.Addr
	// NAT is the number of the rule with nat that translates for Behind, 0 where settings do: what
	// it lets pass is translated.
	NAT uint16

	Live []*Translation
	// Chosen is the source port that the engine gives the next packet if it needs another one.
	Chosen uint16

	through map[throughKey]bool // states of flows through published ports
}

// Port is a port of the host that is given to a pod.
type Port struct {
	Proto packet.Proto
	To    netip.AddrPort
}

// Ends are those of a packet, or of a flow as who began it sends.
type Ends struct {
	Proto    packet.Proto
	From, To netip.AddrPort
}

// Reversed are the ends of an answer.
func (e Ends) Reversed() Ends { return Ends{e.Proto, e.To, e.From} }

// Translation is a flow that is translated.
type Translation struct {
	Wire, Inner Ends
	Source      bool // a pod hides; else the port is published
	Phase       flow.Phase
	Last        time.Duration
	own         *flow.State // where rules keep no state
	fresh       bool        // no packet that it translated has left
	ruled       bool        // a rule with nat has made it
}

type throughKey struct {
	ends    Ends
	created time.Duration
}

// Grace is how long a translation outlives its flow, and Exact how exact the time of its last
// packet is.
const (
	Grace = 2 * time.Second
	Exact = time.Second
)

// Deadline is when a translation ends if no more packets come.
func (m *Translator) Deadline(t *Translation) time.Duration {
	return t.Last + m.Rules.Options.Timeouts.Of(t.Wire.Proto, t.Phase) + Grace
}

// Forwarded is what becomes of a packet.
type Forwarded struct {
	Pass bool
	Up   bool // it is the host's own business
	// the stack carries it from a card to a card
	Routed bool
	Out    Ends         // as it leaves
	Made   *Translation // it hid a pod: the port is the kernel's choice, 0 here
}

// Forward has a packet come in at a time. build makes it, as sent between some ends.
func (m *Translator) Forward(e Ends, now time.Duration, build func(Ends) []byte) Forwarded {
	m.Live = slices.DeleteFunc(m.Live, func(t *Translation) bool { return now > m.Deadline(t) })
	recv, fromPod := m.Pods[e.From.Addr()]
	if !fromPod {
		recv = m.card(e.From.Addr())
	}
	seen, followed, called := m.arrive(e)
	if !seen.To.IsValid() {
		return Forwarded{}
	}
	xmit, toPod := m.Pods[seen.To.Addr()]
	if !toPod {
		xmit = m.Card
	}
	pkt := build(seen)
	if seg := segmentOf(pkt); called {
		var free bool
		if seen, free = m.move(seen, now, seg); !free {
			return Forwarded{}
		}
		pkt = build(seen)
	} else if seen.To.Addr() != m.Host && followed == nil && m.strays(seen, now, seg) {
		return Forwarded{}
	}
	held := m.held(seen, followed, called)
	if held { // rules see what is on the wire
		pkt = build(e)
	}
	v := m.Rules.Evaluate(&firewall.Input{Now: time.Duration(now),
		Hook: firewall.Hook{Dir: firewall.In, Recv: recv}}, pkt)
	if !v.Pass {
		return Forwarded{}
	}
	if held && v.Rule != m.NAT {
		seen, followed, called = e, nil, false
	}
	pkt = build(seen)
	f := passed{Translator: m, ends: seen, pkt: pkt, now: now, v: v, state: m.state(seen, v)}
	if !toPod && !fromPod {
		return f.route(e, called, followed, recv)
	}
	if v.State == firewall.StateNone {
		hook := firewall.Hook{Dir: firewall.Out, Recv: recv, Xmit: xmit}
		if v = m.Rules.Evaluate(&firewall.Input{Now: time.Duration(now), Hook: hook},
			pkt); !v.Pass {
			return Forwarded{}
		}
	}
	// It has passed: now translations may move.
	f.v, f.state = v, m.state(seen, v)
	// the one before it may have begun at the same tick of the clock
	if v.State == firewall.StateNew {
		delete(m.through, f.key())
	}
	switch {
	case called:
		if followed = f.publish(e); followed == nil {
			return Forwarded{}
		}
	case followed != nil:
		if v.State == firewall.StateNew && !followed.Source {
			f.markThrough()
		}
		f.touch(followed)
	case toPod && f.begins() && v.State == firewall.StateNew:
		m.forget(seen)
	}
	if fromPod {
		return f.leave(toPod)
	}
	return Forwarded{Pass: true, Out: seen}
}

// arrive says what rules see of a packet, which translation it follows, and whether it calls a
// published port, or a service.
func (m *Translator) arrive(e Ends) (seen Ends, t *Translation, called bool) {
	if _, pod := m.Pods[e.To.Addr()]; pod {
		return e, nil, false
	}
	for _, t := range m.Live {
		if !t.Source && t.Wire == e {
			return t.Inner, t, false
		}
		if t.Source && t.Wire == e.Reversed() {
			return t.Inner.Reversed(), t, false
		}
	}
	if to, ok := m.Published[Port{e.Proto, e.To}]; ok {
		return Ends{e.Proto, e.From, to}, nil, true
	}
	if m.Services != nil {
		if to, is := m.Services(e); is {
			return Ends{e.Proto, e.From, to}, nil, true
		}
	}
	for host, public := range m.Whole {
		if public == e.To.Addr() {
			return Ends{e.Proto, e.From, netip.AddrPortFrom(host, e.To.Port())}, nil, true
		}
	}
	return e, nil, false
}

// state returns the state that a packet has found or made, nil if rules keep none.
func (m *Translator) state(e Ends, v firewall.Verdict) *firewall.State {
	if v.State == firewall.StateNone {
		return nil
	}
	for _, s := range m.Rules.States() {
		ends := Ends{s.Proto, s.From, s.To}
		if ends == e || ends == e.Reversed() {
			return &s
		}
	}
	return nil
}

func (m *Translator) forget(inner Ends) {
	m.Live = slices.DeleteFunc(m.Live, func(t *Translation) bool {
		return t.Inner == inner || t.Inner == inner.Reversed()
	})
}

// passed is a packet that the rules have let pass.
type passed struct {
	*Translator
	ends  Ends // as rules see it
	pkt   []byte
	now   time.Duration
	v     firewall.Verdict
	state *firewall.State
	// it may yet be refused where it leaves
	untried bool
}

// key names the state.
func (f *passed) key() throughKey {
	if f.state == nil {
		return throughKey{}
	}
	return throughKey{Ends{f.state.Proto, f.state.From, f.state.To}, f.state.Created}
}

// begins: the packet comes from who began the flow.
func (f *passed) begins() bool {
	if f.state == nil {
		_, behind := f.Behind[f.ends.From.Addr()]
		return behind && f.NAT != 0 && f.v.Rule == f.NAT || f.ends.Proto != packet.ProtoTCP ||
			f.segment().Flags&(packet.FlagSYN|packet.FlagACK) == packet.FlagSYN
	}
	return f.state.From == f.ends.From
}

func (f *passed) segment() flow.Segment { return segmentOf(f.pkt) }

func segmentOf(b []byte) flow.Segment {
	var p packet.Packet
	p.Decode(b)
	return flow.SegmentOf(&p, b)
}

// publish makes the translation of a call of a published port, nil if it may not be.
func (f *passed) publish(wire Ends) *Translation {
	newSubject := f.state != nil && f.v.State == firewall.StateNew
	switch {
	case f.state == nil:
		if f.ends.Proto == packet.ProtoTCP &&
			f.segment().Flags&(packet.FlagRST|packet.FlagFIN) != 0 {
			return nil
		}
	case f.v.State == firewall.StateUntouched:
		return nil
	case !newSubject && !f.through[f.key()]:
		return nil
	}
	for _, t := range f.Live {
		over := t.Phase == flow.PhaseClosed || t.Phase == flow.PhaseReset || newSubject
		if (t.Inner == f.ends || t.Inner == f.ends.Reversed()) && !over {
			return nil
		}
	}
	f.forget(f.ends)
	t := f.add(wire, false)
	if f.state != nil {
		f.markThrough()
	}
	return t
}

// markThrough records that the flow of the state goes through a published port.
func (f *passed) markThrough() {
	if f.through == nil {
		f.through = map[throughKey]bool{}
	}
	f.through[f.key()] = true
}

func (f *passed) add(wire Ends, source bool) *Translation {
	t := &Translation{Wire: wire, Inner: f.ends, Source: source, ruled: f.ruled(f.ends)}
	f.Live = append(f.Live, t)
	if f.untried {
		t.Last, t.Phase, t.fresh = f.now, flow.PhaseOpening, true
		return t
	}
	f.step(t)
	return t
}

// leave says how what a pod has sent continues.
func (f *passed) leave(toPod bool) Forwarded {
	for _, t := range f.Live {
		switch {
		case t.Source && t.Inner == f.ends:
			f.touch(t)
			return Forwarded{Pass: true, Out: t.Wire}
		case !t.Source && t.Inner == f.ends.Reversed():
			f.touch(t)
			return Forwarded{Pass: true, Out: t.Wire.Reversed()}
		}
	}
	if toPod || !f.hides() || !f.begins() {
		return Forwarded{Pass: true, Out: f.ends}
	}
	wire := f.ends
	if public, whole := f.Whole[wire.From.Addr()]; whole {
		wire.From = netip.AddrPortFrom(public, wire.From.Port())
		return f.leaveWhole(wire)
	}
	wire.From = netip.AddrPortFrom(f.Host, 0)
	t := f.add(wire, true)
	return Forwarded{Pass: true, Out: wire, Made: t}
}

// touch lets a translation continue as its flow does. Of an established flow that rules keep a
// state of only a new state, SYN, FIN and RST are news.
func (f *passed) touch(t *Translation) {
	if f.v.State == firewall.StateUntouched {
		return
	}
	const turns = packet.FlagSYN | packet.FlagFIN | packet.FlagRST
	plain := f.ends.Proto != packet.ProtoTCP || f.segment().Flags&turns == 0
	if t.Phase == flow.PhaseEstablished && f.state != nil && f.v.State != firewall.StateNew &&
		plain {
		t.Last = f.now
		return
	}
	f.step(t)
}

// begin begins the state of a translation with a segment of one of the sides. Who made the
// translation stays side A.
func (t *Translation) begin(seg *flow.Segment, side int, now time.Duration) {
	t.own.Init(t.Inner.Proto, seg, now)
	if side == 1 {
		t.own.Sides[0], t.own.Sides[1] = t.own.Sides[1], t.own.Sides[0]
	}
}

func (f *passed) step(t *Translation) {
	t.Last, t.fresh = f.now, false
	if f.state != nil {
		t.Phase = f.state.Phase
		return
	}
	seg := f.segment()
	side := 0
	if f.ends != t.Inner {
		side = 1
	}
	if t.own == nil {
		t.own = &flow.State{Proto: t.Inner.Proto, Loose: true}
		if t.ruled && f.ends.Proto == packet.ProtoTCP && seg.Flags&packet.FlagRST != 0 {
			return // it ends nothing that was seen
		}
		t.begin(&seg, side, f.now) // of the other side: the rules kept a state of what was before
	} else if t.own.Step(&seg, flow.Dir(side), f.now, flow.ModeStrict) == flow.ResultRecycle {
		t.begin(&seg, side, f.now)
	}
	t.Phase = t.own.Phase()
}
