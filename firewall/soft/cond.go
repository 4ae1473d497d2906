package soft

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// holds evaluates the conditions that the bit vectors do not decide: every clause, a run joined by
// FlagOr, must be true.
func (j *job) holds(code *rule.Code) bool {
	for i := code.Cond; i < code.CondEnd; {
		clause := false
		for {
			c := &j.cfg.prog.Conds[i]
			i++
			if !clause {
				clause = j.cond(c) != (c.Flags&rule.FlagNot != 0)
			}
			if c.Flags&rule.FlagOr == 0 || i == code.CondEnd {
				break
			}
		}
		if !clause {
			return false
		}
	}
	return true
}

// cond evaluates one condition without its not.
func (j *job) cond(c *rule.Cond) bool {
	p := j.p
	switch c.Op {
	case rule.OpTrue:
		return true
	case rule.OpVersion:
		return uint32(p.Version) == c.A
	case rule.OpProto:
		return uint32(p.Proto) == c.A
	case rule.OpSrcIn:
		return j.within(c, &p.SrcIP)
	case rule.OpDstIn:
		return j.within(c, &p.DstIP)
	case rule.OpSrcMe:
		return (c.A != 6 || p.Version == 6) && j.cfg.host.isMe(p.SrcWords())
	case rule.OpDstMe:
		return (c.A != 6 || p.Version == 6) && j.cfg.host.isMe(p.DstWords())
	case rule.OpSrcTable:
		return j.member(c, &p.SrcIP)
	case rule.OpDstTable:
		return j.member(c, &p.DstIP)
	case rule.OpSrcPort:
		return p.HasPorts() && j.inRanges(c, p.Ports>>16)
	case rule.OpDstPort:
		return p.HasPorts() && j.inRanges(c, p.Ports&0xffff)
	case rule.OpIn:
		return j.in.Hook.Dir == firewall.In
	case rule.OpOut:
		return j.in.Hook.Dir == firewall.Out
	case rule.OpRecv, rule.OpRecvGlob, rule.OpRecvAny, rule.OpRecvAddr:
		return j.onInterface(c, c.Op-rule.OpRecv, j.in.Hook.Recv)
	case rule.OpXmit, rule.OpXmitGlob, rule.OpXmitAny, rule.OpXmitAddr:
		return j.onInterface(c, c.Op-rule.OpXmit, j.xmit())
	case rule.OpVia, rule.OpViaGlob, rule.OpViaAny, rule.OpViaAddr:
		if j.in.Hook.Dir == firewall.In {
			return j.onInterface(c, c.Op-rule.OpVia, j.in.Hook.Recv)
		}
		return j.onInterface(c, c.Op-rule.OpVia, j.xmit())
	case rule.OpTagged:
		return j.tagged(c)
	case rule.OpVerRevPath, rule.OpVerSrcReach, rule.OpAntiSpoof:
		return j.path(c.Op)
	}
	return j.header(c)
}

// header evaluates the conditions about fields of the headers.
func (j *job) header(c *rule.Cond) bool {
	p := j.p
	tcp := p.Proto == packet.ProtoTCP && p.HasPorts()
	switch c.Op {
	case rule.OpFlags:
		return tcp && uint32(p.TCPFlags)&c.B == c.A
	case rule.OpEstab:
		return tcp && p.TCPFlags&(packet.FlagRST|packet.FlagACK) != 0
	case rule.OpSeq:
		return tcp && p.Seq == c.A
	case rule.OpAck:
		return tcp && p.Ack == c.A
	case rule.OpWin:
		return tcp && j.inRanges(c, uint32(p.Window()))
	case rule.OpFrag:
		return fragBits(p)&c.B == c.A
	case rule.OpICMPType:
		return p.Version == 4 && p.IsICMP() && j.inRanges(c, uint32(p.ICMPType()))
	case rule.OpICMP6Type:
		return p.Version == 6 && p.IsICMP() && j.inRanges(c, uint32(p.ICMPType()))
	case rule.OpTTL:
		return j.inRanges(c, uint32(p.TTL))
	case rule.OpLen:
		return j.inRanges(c, p.Len())
	case rule.OpID:
		return p.Version == 4 && j.inRanges(c, p.IPID)
	case rule.OpIPOptions:
		return p.Version == 4 && uint32(p.IPOptions)&c.B == c.A
	case rule.OpTOS:
		return p.Version == 4 && uint32(p.TOS)&c.B == c.A
	case rule.OpDSCP:
		d := p.TOS >> 2
		if d < 32 {
			return c.A>>d&1 != 0
		}
		return c.B>>(d-32)&1 != 0
	case rule.OpPrecedence:
		return p.Version == 4 && uint32(p.TOS>>5) == c.A
	}
	return false
}

// fragBits returns the fragment bits of a packet as rules name them.
func fragBits(p *packet.Packet) uint32 {
	var b uint32
	if p.Frag&packet.FragLater != 0 {
		b |= rule.FragOffset
	}
	if p.Frag&packet.FragMF != 0 {
		b |= rule.FragMF
	}
	if p.Frag&packet.FragDF != 0 {
		b |= rule.FragDF
	}
	if p.Frag&packet.FragRF != 0 {
		b |= rule.FragRF
	}
	return b
}

func (j *job) inRanges(c *rule.Cond, v uint32) bool {
	for _, r := range j.cfg.prog.Ranges[c.A : c.A+uint32(c.N)] {
		if r.Lo <= v && v <= r.Hi {
			return true
		}
	}
	return false
}

func (j *job) within(c *rule.Cond, ip *[16]byte) bool {
	hi, lo := addrWords(ip)
	for _, p := range j.cfg.prog.Prefixes[c.A : c.A+uint32(c.N)] {
		phi, plo, length, v4 := words(p)
		if v4 == (j.p.Version == 4) && common(hi, lo, phi, plo) >= length {
			return true
		}
	}
	return false
}

// member looks an address up in a table.
func (j *job) member(c *rule.Cond, ip *[16]byte) bool {
	hi, lo := addrWords(ip)
	value, ok := j.cfg.tables[c.A].set.Load().find(hi, lo, j.p.Version == 4)
	return ok && (c.N != 1 || value == c.B)
}

// xmit returns the transmit interface, which only an outgoing packet has.
func (j *job) xmit() uint32 {
	if j.in.Hook.Dir == firewall.In {
		return 0
	}
	return j.in.Hook.Xmit
}

// onInterface compares an interface; kind is the distance from OpRecv, OpXmit or OpVia: exact,
// glob, any, address.
func (j *job) onInterface(c *rule.Cond, kind rule.CondOp, index uint32) bool {
	if kind == rule.OpRecvAny-rule.OpRecv {
		return index != 0
	}
	f := j.cfg.host.iface(index)
	if f == nil {
		return false
	}
	switch kind {
	case 0:
		return f.name == int32(c.A)
	case rule.OpRecvGlob - rule.OpRecv:
		return f.globs>>c.A&1 != 0
	}
	for _, a := range f.addrs {
		if a == j.cfg.prog.Prefixes[c.A].Addr() {
			return true
		}
	}
	return false
}

func (j *job) tagged(c *rule.Cond) bool {
	for _, t := range j.tags[:j.ntags] {
		if j.inRanges(c, uint32(t)) {
			return true
		}
	}
	return false
}

// path evaluates the conditions about routes. They are true for outgoing packets and, as in ipfw,
// for packets without an incoming interface.
func (j *job) path(op rule.CondOp) bool {
	p, h, recv := j.p, j.cfg.host, j.in.Hook.Recv
	if j.in.Hook.Dir == firewall.Out || recv == 0 {
		return true
	}
	v4 := p.Version == 4
	hi, lo := p.SrcWords()
	switch op {
	case rule.OpVerRevPath:
		return h.reverse(hi, lo, v4, recv)
	case rule.OpVerSrcReach:
		return h.reachable(hi, lo, v4)
	}
	return !h.spoofed(hi, lo, v4, recv)
}
