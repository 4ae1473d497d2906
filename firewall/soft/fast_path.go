package soft

import (
	"math/bits"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// The fast path evaluates the packets that are most of the traffic. These are packets of a TCP or
// UDP flow whose state the first rule finds and whose rule only passes them. They are also packets
// without a state that a simple rule passes or drops. The fast path does the work of walk,
// lookupFlow and flow.State.Step on packed entries. Everything else takes the slow path. The differ
// compares both with the reference model.

// prepareFastPath prepares the fast path of a config.
func (c *config) prepareFastPath() {
	c.udp = [2]time.Duration{c.opts.Timeouts.UDP, c.opts.Timeouts.UDPReply}
	first := &c.rules[0]
	c.firstLooksUp = first.State.LooksUp() && first.Prob == 0 && first.Flow != program.AnyFlow
	c.stateless = len(c.lookups) == 0 || c.firstLooksUp && len(c.flows) == 1
	c.short = make([]firewall.Verdict, len(c.slots))
	c.simple = make([]firewall.Verdict, len(c.rules))
	c.keepState = make([]firewall.Verdict, len(c.rules))
	if c.firstLooksUp {
		c.firstFlow = c.flows[first.Flow]
		if first.State == op.StateCheck {
			c.after = 1
		}
	}
	for slot, id := range c.ids {
		r := &c.rules[slot]
		if r.Log || r.Tag != 0 || r.Pipe != 0 ||
			r.Action != op.ActionAllow && r.Action != op.ActionDeny {
			continue
		}
		v := firewall.Verdict{Pass: r.Action == op.ActionAllow, Rule: r.Number, Slot: uint16(slot)}
		always := r.Prob == 0 && r.Every == 0 && r.Cond == r.CondEnd
		if r.State == op.StateNone && always {
			c.simple[slot] = v
		}
		if r.State == op.StateKeep && always && !r.Defer && v.Pass {
			v.State = firewall.StateNew
			c.keepState[slot] = v
		}
		if v.Pass {
			v.State = firewall.StateHit
			c.short[id] = v
		}
	}
}

// lastState is where the state of the latest fast-path packet is: packets come in trains. It is
// valid until shard.moves changes.
type lastState struct {
	src, dst [16]byte
	ports    uint32
	moves    uint32
	proto    packet.Proto
	from     uint8 // the side that sent the packet
	e        *entry
}

// fastResult is how far the fast path got.
type fastResult uint8

const (
	evaluated fastResult = iota // the verdict is there
	undecided                   // the slow path decides
	// the first rule finds no state; shard.hash is the hash of the flow
	noState
)

// fastPath evaluates a packet if the fast path applies to it: the verdict is nil if not, else one
// of the config's. h is the hash of its flow, or 0 if it is not computed yet. With a hash, guess is
// the state that its flow may have, or nil.
func (s *shard) fastPath(p *packet.Packet, in *firewall.Input, h uint64,
	guess *entry) (*firewall.Verdict, fastResult) {
	c := s.cfg
	if p.Reason != packet.ReasonNone || p.Frag&(packet.FragFirst|packet.FragLater) != 0 {
		return nil, undecided
	}
	if p.Proto != packet.ProtoTCP && p.Proto != packet.ProtoUDP {
		if !c.stateless || s.mayMeetState(p) {
			return nil, undecided
		}
		return s.fastStateless(p, in.Hook.Dir, in.Now), undecided
	}
	if p.Proto == packet.ProtoUDP && dhcpPorts(p.Ports) {
		return nil, undecided
	}
	now := in.Now
	m := &s.lastState
	e, from := m.e, uint64(m.from)
	if m.ports != p.Ports || m.src != p.SrcIP || m.dst != p.DstIP || m.proto != p.Proto ||
		m.moves != s.moves {
		if !c.firstLooksUp {
			if !c.stateless {
				return nil, undecided
			}
			return s.fastStateless(p, in.Hook.Dir, now), undecided
		}
		// the key holds a link, too, in bits that an address of a packet may have
		if p.Version == 6 && flow.LinkLocal(p) {
			return nil, undecided
		}
		if h == 0 {
			guess = s.hints[hintOf(p)]
		}
		if e, from = s.confirm(guess, p); e == nil {
			got := s.fastLookup(p, m, h)
			if got == noState && c.stateless {
				return s.fastStateless(p, in.Hook.Dir, now), noState
			}
			if got != evaluated {
				return nil, got
			}
			e, from = m.e, uint64(m.from)
		}
	}
	r := &c.short[e.rule]
	last := max(e.last[0], e.last[1])
	d, q := &e.sides[from&1], &e.sides[from&1^1]
	if p.Proto == packet.ProtoUDP {
		if now > last+c.udp[d.bytes&q.bytes&uint64(flow.SideSeen)] ||
			d.bytes&uint64(flow.SideSeen) == 0 ||
			!r.Pass ||
			// this proves the flow
			from == 0 && q.bytes&uint64(flow.SideSeen) != 0 &&
				d.bytes&uint64(flow.SideProved) == 0 {
			return nil, undecided
		}
	} else if p.TCPFlags&shape == packet.FlagSYN {
		df, qf := flow.SideFlags(d.bytes), flow.SideFlags(q.bytes)
		if !r.Pass || df&(flow.SideSyn|flow.SideRst|flow.SideFin) != flow.SideSyn || qf != 0 ||
			e.id&infoLoose != 0 || p.Seq != uint32(d.numbers>>32) ||
			now > last+c.opts.Timeouts.Syn {
			return nil, undecided
		}
	} else if !r.Pass || !fastTCP(c, e, d, q, p, last, now) {
		return nil, undecided
	}
	e.last[from&1] = now
	n := p.Len()
	d.bytes += uint64(n) << 8
	d.packets += 1 << 24
	s.count(int(r.Slot), n, now)
	s.decide(in.Hook.Dir, &firewall.Verdict{Pass: true, Reason: firewall.ReasonRule}, n)
	return r, evaluated
}

// fastLookup finds the state of an unfragmented TCP or UDP packet under the flow name that the
// first rule looks up. It returns evaluated if there is one, noState if there is none, and
// undecided if it would be in another shard.
func (s *shard) fastLookup(p *packet.Packet, m *lastState, h uint64) fastResult {
	hashed := h != 0
	if !hashed {
		h = hashEnds(&p.SrcIP, &p.DstIP, p.Ports, p.Proto, &s.established.seed)
	}
	if s.many && s.engine.shardOf(h) != s.index {
		return undecided
	}
	conv := uint64(p.Proto)<<(idProto-idKey) | uint64(s.cfg.firstFlow)
	id := uint64(p.Ports)<<(idPorts-idKey) | conv
	back := uint64(bits.RotateLeft32(p.Ports, 16))<<(idPorts-idKey) | conv
	likely, other := &s.established, &s.halfOpen
	if p.TCPFlags&packet.FlagSYN != 0 {
		likely, other = other, likely
	}
	e, from := likely.locate(p, id, back, h)
	if e == nil {
		if e, from = other.locate(p, id, back, h); e == nil {
			if flow.LinkLocal(p) { // both ends are link-local ones of IPv4
				return undecided
			}
			s.hash = h
			return noState
		}
	}
	*m = lastState{src: p.SrcIP, dst: p.DstIP, ports: p.Ports, proto: p.Proto,
		moves: s.moves, from: uint8(from), e: e}
	if !hashed {
		s.hints[hintOf(p)] = e
	}
	return evaluated
}

// locate finds the entry of a packet's flow, and the side that sent the packet. id is the key's
// part of entry.id with the source as the low end, back that with the destination as the low end.
func (t *table) locate(p *packet.Packet, id, back, h uint64) (e *entry, from uint64) {
	n := uint64(len(t.tags))
	a, b := (h>>32)*n>>32, (h&0xffffffff)*n>>32
	tag := max(uint8(h), 1)
	ma, mb := match(t.tags[a], tag), match(t.tags[b], tag)
	for {
		if ma == 0 {
			if mb == 0 {
				return nil, 0
			}
			a, ma, mb = b, mb, 0
		}
		e = &t.entries[a*ways+uint64(bits.TrailingZeros64(ma)>>3)]
		ma &= ma - 1
		if e.id>>idKey == id && e.low == p.SrcIP && e.high == p.DstIP {
			return e, e.id & 1
		}
		if e.id>>idKey == back && e.low == p.DstIP && e.high == p.SrcIP {
			return e, e.id&1 ^ 1
		}
	}
}

// icmpErrors has a bit for every ICMP type that is an error. All of them are below 64.
const icmpErrors uint64 = 1<<3 | 1<<4 | 1<<5 | 1<<11 | 1<<12

// mayMeetState reports whether a packet of another protocol might have a state, or might be
// essential.
func (s *shard) mayMeetState(p *packet.Packet) bool {
	if p.Proto == packet.ProtoICMPv6 && p.ICMPType() >= 130 && p.ICMPType() <= 143 {
		return true
	}
	return s.cfg.firstLooksUp && (s.many || s.live[p.Proto] != 0 || p.Proto == packet.ProtoICMP &&
		icmpErrors>>p.ICMPType()&1 != 0 ||
		p.Proto == packet.ProtoICMPv6 && p.ICMPType()-1 < 4)
}

// lastRule is the rule that matched the latest packet without a state, with everything that decided
// about it: packets come in trains.
type lastRule struct {
	cfg         *config
	src, dst    [16]byte
	ports, rest uint32
	slot        int
}

// fastStateless evaluates a packet that has no state, if the first rule that matches it is a simple
// one; else it returns nil.
func (s *shard) fastStateless(p *packet.Packet, dir firewall.Direction,
	now time.Duration) *firewall.Verdict {
	c, m := s.cfg, &s.lastRule
	// The version is in the addresses: IPv4 ones are mapped.
	rest := uint32(p.Proto) | uint32(p.TCPFlags)<<8 | uint32(p.ICMPType())<<16 | uint32(dir)<<24
	if m.ports != p.Ports || m.rest != rest || m.src != p.SrcIP || m.dst != p.DstIP || m.cfg != c {
		*m = lastRule{cfg: c, src: p.SrcIP, dst: p.DstIP, ports: p.Ports, rest: rest,
			slot: c.class.first(p, dir, c.after, len(c.rules)-1)}
	}
	slot := m.slot
	r := &c.simple[slot]
	if r.Rule == 0 || !r.Pass && s.engine.onEvent != nil {
		return nil
	}
	n := p.Len()
	s.count(slot, n, now)
	s.decide(dir, r, n)
	return r
}

// fastCreate evaluates a packet without a state, if the first rule that matches it simply keeps
// state and allows. fastPath has found that rule.
func (w *Worker) fastCreate(in *firewall.Input, p *packet.Packet, pkt []byte,
	v *firewall.Verdict) bool {
	s, j := w.shard, &w.job
	c := s.cfg
	if !c.stateless {
		return false
	}
	slot := s.lastRule.slot
	keep := &c.keepState[slot]
	if keep.Rule == 0 {
		return false
	}
	j.sh, j.cfg, j.in, j.p, j.b, j.now = s, c, in, p, pkt, in.Now
	j.hash, j.isErr, j.hasSeg, j.use = s.hash, false, false, firewall.StateNone
	j.key, j.dir, j.hasKey = flow.KeyOf(p, pkt, in.Hook.Link())
	*v = *keep
	if r := j.createState(slot, &c.rules[slot]); r != firewall.ReasonRule {
		*v = j.drop(slot, r)
		if s.engine.onEvent != nil {
			j.dropped(*v)
		}
	} else {
		s.count(slot, p.Len(), j.now)
	}
	s.decide(in.Hook.Dir, v, p.Len())
	return true
}

// window returns the largest window of a side.
func (s *side) window() uint32 {
	w := uint32(s.packets >> 8 & 0xffff)
	if s.packets&winScaled != 0 {
		w <<= s.packets & 15
	}
	return w
}

// shape are the flags that decide what a segment is.
const shape = packet.FlagSYN | packet.FlagACK | packet.FlagFIN | packet.FlagRST

// fastTCP advances the numbers of side d by a segment of an established strict state with ACK only
// (and PSH, URG, ECE, CWR). For any other segment it returns false and changes nothing.
func fastTCP(c *config, e *entry, d, q *side, p *packet.Packet, last, now time.Duration) bool {
	df, qf := flow.SideFlags(d.bytes), flow.SideFlags(q.bytes)
	if e.id&infoLoose != 0 || (df|qf)&(flow.SideRst|flow.SideFin) != 0 {
		return false
	}
	const both = flow.SideSeen | flow.SideSyn | flow.SideAcked
	if p.TCPFlags&shape != packet.FlagACK || df&qf&both != both || now > last+
		c.opts.Timeouts.Established {
		return false
	}
	if flow.SideFlags(e.sides[0].bytes)&flow.SideProved == 0 {
		return false
	}
	dEnd, qEnd, edge := uint32(d.numbers), uint32(q.numbers), uint32(q.acks)
	end := p.Seq + p.Len() - uint32(p.PayloadOffset())
	if int32(edge-p.Seq) < 0 || int32(edge+1-end) < 0 ||
		int32(end-(dEnd-max(q.window(), flow.Slack))) < 0 ||
		int32(qEnd-p.Ack) < 0 || int32(p.Ack-(qEnd-max(d.window(), flow.Slack))) < 0 {
		return false
	}
	win := uint32(p.Window())
	if df&qf&flow.SideScaled != 0 {
		win <<= d.packets & 15
	}
	if win > d.window() {
		field := uint64(win) << 8
		if win > 0xffff {
			field = uint64(p.Window())<<8 | winScaled
		}
		d.packets = d.packets&^(0xffff<<8|winScaled) | field
	}
	if int32(end-dEnd) > 0 {
		d.numbers = d.numbers&^0xffffffff | uint64(end)
	}
	ack, top := uint32(d.acks>>32), uint32(d.acks)
	if int32(p.Ack-ack) > 0 {
		ack = p.Ack
	}
	if int32(p.Ack+win-top) > 0 {
		top = p.Ack + win
	}
	d.acks = uint64(ack)<<32 | uint64(top)
	return true
}
