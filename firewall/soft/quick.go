package soft

import (
	"math/bits"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// The short cut judges the packets that are most of all traffic: those of a TCP or UDP conversation
// whose state is found by the very first rule and whose rule simply passes them, and those without
// a state that a simple rule passes or drops. It does what walk, lookOne and flow.State.Step do, on
// packed entries, and leaves everything that is not plain to them. The differ holds the two
// together.

// shortcut prepares the short cut of a config.
func (c *config) shortcut() {
	c.udp = [2]int64{int64(c.opts.Timeouts.UDP), int64(c.opts.Timeouts.UDPReply)}
	first := &c.rules[0]
	c.looks = first.State.LooksUp() && first.Prob == 0 && first.Flow != rule.AnyFlow
	c.stateless = len(c.lookups) == 0 || c.looks && len(c.flows) == 1
	c.short = make([]firewall.Verdict, len(c.slots))
	c.plain = make([]firewall.Verdict, len(c.rules))
	c.keeps = make([]firewall.Verdict, len(c.rules))
	if c.looks {
		c.shortFlow = c.flows[first.Flow]
		if first.State == rule.StateCheck {
			c.after = 1
		}
	}
	for slot, id := range c.ids {
		r := &c.rules[slot]
		if r.Log || r.Tag != 0 || r.Action != rule.OpAllow && r.Action != rule.OpDeny {
			continue
		}
		v := firewall.Verdict{Pass: r.Action == rule.OpAllow, Rule: r.Number, Slot: uint16(slot)}
		if r.State == rule.StateNone && r.Prob == 0 && r.Cond == r.CondEnd {
			c.plain[slot] = v
		}
		if r.State == rule.StateKeep && r.Prob == 0 && r.Cond == r.CondEnd && !r.Defer && v.Pass {
			v.State = firewall.StateNew
			c.keeps[slot] = v
		}
		if v.Pass {
			v.State = firewall.StateHit
			c.short[id] = v
		}
	}
}

// recent is where the state of the latest plain packet is: packets come in trains. It holds as long
// as the shard's moves stay the same.
type recent struct {
	src, dst [16]byte
	ports    uint32
	moves    uint32
	proto    uint8
	from     uint8 // the side that sent the packet
	e        *entry
}

// shorted says how far the short cut led.
type shorted uint8

const (
	judged   shorted = iota // to the verdict
	unjudged                // nowhere
	// the first rule finds no state: shard.hash is the hash of the conversation
	absent
)

// when returns judged if ok, else otherwise.
func when(ok bool, otherwise shorted) shorted {
	if ok {
		return judged
	}
	return otherwise
}

// quick judges a packet, if it can do so in short. h is the hash of its conversation, or 0 if that
// is still to be computed.
func (s *shard) quick(p *packet.Packet, in *firewall.Input, v *firewall.Verdict, h uint64) shorted {
	c := s.cfg
	if p.Reason != packet.ReasonNone || p.Frag&(packet.FragFirst|packet.FragLater) != 0 {
		return unjudged
	}
	if p.Proto != packet.ProtoTCP && p.Proto != packet.ProtoUDP {
		return when(c.stateless && !s.meets(p) && s.pass(p, in.Hook.Dir, int64(in.Now), v),
			unjudged)
	}
	now := int64(in.Now)
	m := &s.recent
	if m.ports != p.Ports || m.src != p.SrcIP || m.dst != p.DstIP || m.proto != p.Proto ||
		m.moves != s.moves {
		if !c.looks {
			return when(c.stateless && s.pass(p, in.Hook.Dir, now, v), unjudged)
		}
		if got := s.seek(p, m, h); got != judged {
			return when(got == absent && c.stateless && s.pass(p, in.Hook.Dir, now, v), got)
		}
	}
	e := m.e
	r := &c.short[e.rule]
	last := max(e.last[0], e.last[1])
	from := uint64(m.from)
	d, q := &e.sides[from&1], &e.sides[from&1^1]
	if p.Proto == packet.ProtoUDP {
		if now > last+c.udp[d.bytes&q.bytes&uint64(flow.Seen)] || d.bytes&uint64(flow.Seen) == 0 ||
			!r.Pass ||
			// this proves the flow
			from == 0 && q.bytes&uint64(flow.Seen) != 0 && d.bytes&uint64(flow.Proved) == 0 {
			return unjudged
		}
	} else if p.TCPFlags&shape == packet.FlagSYN {
		df, qf := flow.SideFlags(d.bytes), flow.SideFlags(q.bytes)
		if !r.Pass || df&(flow.Syn|flow.Rst|flow.Fin) != flow.Syn || qf != 0 ||
			e.id&infoLoose != 0 || p.Seq != uint32(d.numbers>>32) ||
			now > last+int64(c.opts.Timeouts.Syn) {
			return unjudged
		}
	} else if !r.Pass || !shortTCP(c, e, d, q, p, last, now) {
		return unjudged
	}
	e.last[from&1] = now
	n := p.Len()
	d.bytes += uint64(n) << 8
	d.packets += 1 << 24
	s.count(int(r.Slot), n, now)
	s.decide(in.Hook.Dir, r, n)
	*v = *r
	return judged
}

// seek finds the state of a plain packet under the flow name that the first rule looks up: judged
// if it is there, absent if it is not, unjudged if it would be in another shard.
func (s *shard) seek(p *packet.Packet, m *recent, h uint64) shorted {
	if h == 0 {
		h = hashEnds(&p.SrcIP, &p.DstIP, p.Ports, p.Proto, &s.grown.seed)
	}
	if s.many && s.engine.shardOf(h) != s.index {
		return unjudged
	}
	conv := uint64(p.Proto)<<(idProto-idKey) | uint64(s.cfg.shortFlow)
	id := uint64(p.Ports)<<(idPorts-idKey) | conv
	back := uint64(bits.RotateLeft32(p.Ports, 16))<<(idPorts-idKey) | conv
	likely, other := &s.grown, &s.embryo
	if p.TCPFlags&packet.FlagSYN != 0 {
		likely, other = other, likely
	}
	e, from := likely.locate(p, id, back, h)
	if e == nil {
		if e, from = other.locate(p, id, back, h); e == nil {
			if flow.LinkLocal(p) { // its key holds more than was looked for
				return unjudged
			}
			s.hash = h
			return absent
		}
	}
	*m = recent{src: p.SrcIP, dst: p.DstIP, ports: p.Ports, proto: p.Proto,
		moves: s.moves, from: uint8(from), e: e}
	return judged
}

// locate finds the entry of a plain packet's conversation, and which side sent the packet. id is
// the key's part of entry.id with the source as the low end, back with the destination.
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

// icmpErrors has a bit for every ICMP type below 64 that is an error; those above are none.
const icmpErrors uint64 = 1<<3 | 1<<4 | 1<<5 | 1<<11 | 1<<12

// meets reports whether a packet of another protocol might meet a state, or might be essential.
func (s *shard) meets(p *packet.Packet) bool {
	if p.Proto == packet.ProtoICMPv6 && p.ICMPType() >= 130 && p.ICMPType() <= 143 {
		return true
	}
	return s.cfg.looks && (s.many || s.live[p.Proto] != 0 || p.Proto == packet.ProtoICMP &&
		icmpErrors>>p.ICMPType()&1 != 0 ||
		p.Proto == packet.ProtoICMPv6 && p.ICMPType()-1 < 4)
}

// decided is what the rules said to the latest packet without a state, and all that they looked at:
// packets come in trains.
type decided struct {
	cfg         *config
	src, dst    [16]byte
	ports, rest uint32
	slot        int
}

// pass judges a packet that has no state by the rules, if the first one that matches is simple.
func (s *shard) pass(p *packet.Packet, dir firewall.Direction, now int64,
	v *firewall.Verdict) bool {
	c, m := s.cfg, &s.decided
	// The version is in the addresses: IPv4 ones are mapped.
	rest := uint32(p.Proto) | uint32(p.TCPFlags)<<8 | uint32(p.ICMPType())<<16 | uint32(dir)<<24
	if m.ports != p.Ports || m.rest != rest || m.src != p.SrcIP || m.dst != p.DstIP || m.cfg != c {
		*m = decided{cfg: c, src: p.SrcIP, dst: p.DstIP, ports: p.Ports, rest: rest,
			slot: c.class.first(p, dir, c.after, len(c.rules)-1)}
	}
	slot := m.slot
	r := &c.plain[slot]
	if r.Rule == 0 || !r.Pass && s.engine.onEvent != nil {
		return false
	}
	n := p.Len()
	s.count(slot, n, now)
	s.decide(dir, r, n)
	*v = *r
	return true
}

// begin judges a plain packet without a state, if the first rule that matches it simply keeps state
// and allows. quick has found that rule.
func (w *Worker) begin(in *firewall.Input, p *packet.Packet, pkt []byte, v *firewall.Verdict) bool {
	s, j := w.shard, &w.job
	c := s.cfg
	if !c.stateless {
		return false
	}
	slot := s.decided.slot
	keep := &c.keeps[slot]
	if keep.Rule == 0 {
		return false
	}
	j.sh, j.cfg, j.in, j.p, j.b, j.now = s, c, in, p, pkt, int64(in.Now)
	j.hash, j.isErr, j.hasSeg, j.use = s.hash, false, false, firewall.StateNone
	j.key, j.dir, j.hasKey = flow.KeyOf(p, pkt, in.Hook.Link())
	*v = *keep
	if r := j.make(slot, &c.rules[slot]); r != firewall.ReasonRule {
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

// shortTCP moves the numbers of side d by a plain segment: one with ACK only (and PSH, URG, ECE,
// CWR) of an established strict state. It reports false, with nothing changed, for any other.
func shortTCP(c *config, e *entry, d, q *side, p *packet.Packet, last, now int64) bool {
	df, qf := flow.SideFlags(d.bytes), flow.SideFlags(q.bytes)
	if e.id&infoLoose != 0 || (df|qf)&(flow.Rst|flow.Fin) != 0 {
		return false
	}
	const both = flow.Seen | flow.Syn | flow.Acked
	if p.TCPFlags&shape != packet.FlagACK || df&qf&both != both || now > last+
		int64(c.opts.Timeouts.Established) {
		return false
	}
	if flow.SideFlags(e.sides[0].bytes)&flow.Proved == 0 {
		return false
	}
	dEnd, qEnd, edge := uint32(d.numbers), uint32(q.numbers), uint32(q.acks)
	end := p.Seq + p.Len() - uint32(p.PayloadOffset())
	if int32(edge-p.Seq) < 0 || int32(edge+1-end) < 0 ||
		int32(end-(dEnd-max(q.window(), slack))) < 0 ||
		int32(qEnd-p.Ack) < 0 || int32(p.Ack-(qEnd-max(d.window(), slack))) < 0 {
		return false
	}
	win := uint32(p.Window())
	if df&qf&flow.Scaled != 0 {
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

// slack is flow's: how far behind a segment may lie however small the window is.
const slack = 66000
