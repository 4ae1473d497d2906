package soft

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// holds evaluates the conditions that the bit vectors do not decide: every clause, a run joined by
// FlagOr, must be true.
func (j *job) holds(code *program.Rule) bool {
	for i := code.Cond; i < code.CondEnd; {
		clause := false
		for {
			c := &j.cfg.prog.Conds[i]
			i++
			if !clause {
				clause = j.cond(c) != (c.Flags&program.FlagNot != 0)
			}
			if c.Flags&program.FlagOr == 0 || i == code.CondEnd {
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
func (j *job) cond(c *program.Cond) bool {
	p := j.p
	switch c.Op {
	case op.CondTrue:
		return true
	case op.CondVersion:
		return uint32(p.Version) == c.A
	case op.CondProto:
		return uint32(p.Proto) == c.A
	case op.CondSrcIn:
		return j.within(c, &p.SrcIP)
	case op.CondDstIn:
		return j.within(c, &p.DstIP)
	case op.CondSrcMe:
		return (c.A != 6 || p.Version == 6) && j.cfg.host.isMe(&p.SrcIP, p.Version)
	case op.CondDstMe:
		return (c.A != 6 || p.Version == 6) && j.cfg.host.isMe(&p.DstIP, p.Version)
	case op.CondSrcTable:
		return j.member(c, &p.SrcIP)
	case op.CondDstTable:
		return j.member(c, &p.DstIP)
	case op.CondSrcPort:
		return p.HasPorts() && j.inRanges(c, p.Ports>>16)
	case op.CondDstPort:
		return p.HasPorts() && j.inRanges(c, p.Ports&0xffff)
	case op.CondIn:
		return j.in.Hook.Dir == firewall.In
	case op.CondOut:
		return j.in.Hook.Dir == firewall.Out
	case op.CondRecv, op.CondRecvGlob, op.CondRecvAny, op.CondRecvAddr:
		return j.onInterface(c, c.Op-op.CondRecv, j.recv())
	case op.CondXmit, op.CondXmitGlob, op.CondXmitAny, op.CondXmitAddr:
		return j.onInterface(c, c.Op-op.CondXmit, j.xmit())
	case op.CondVia, op.CondViaGlob, op.CondViaAny, op.CondViaAddr:
		if j.in.Hook.Dir == firewall.In {
			return j.onInterface(c, c.Op-op.CondVia, j.in.Hook.Recv)
		}
		return j.onInterface(c, c.Op-op.CondVia, j.xmit())
	case op.CondTagged:
		return j.tagged(c)
	case op.CondVerRevPath, op.CondVerSrcReach, op.CondAntiSpoof:
		return j.path(c.Op)
	}
	return j.header(c)
}

// header evaluates the conditions about fields of the headers.
func (j *job) header(c *program.Cond) bool {
	p := j.p
	tcp := p.Proto == packet.ProtoTCP && p.HasPorts()
	switch c.Op {
	case op.CondFlags:
		return tcp && uint32(p.TCPFlags)&c.B == c.A
	case op.CondEstab:
		return tcp && p.TCPFlags&(packet.FlagRST|packet.FlagACK) != 0
	case op.CondSeq:
		return tcp && p.Seq == c.A
	case op.CondAck:
		return tcp && p.Ack == c.A
	case op.CondWin:
		return tcp && j.inRanges(c, uint32(p.Window()))
	case op.CondFrag:
		return fragBits(p)&c.B == c.A
	case op.CondICMPType:
		return p.Version == 4 && p.IsICMP() && j.inRanges(c, uint32(p.ICMPType()))
	case op.CondICMP6Type:
		return p.Version == 6 && p.IsICMP() && j.inRanges(c, uint32(p.ICMPType()))
	case op.CondTTL:
		return j.inRanges(c, uint32(p.TTL))
	case op.CondLen:
		return j.inRanges(c, p.Len())
	case op.CondID:
		return p.Version == 4 && j.inRanges(c, p.IPID)
	case op.CondIPOptions:
		return p.Version == 4 && uint32(p.IPOptions)&c.B == c.A
	case op.CondTOS:
		return p.Version == 4 && uint32(p.TOS)&c.B == c.A
	case op.CondDSCP:
		d := p.TOS >> 2
		if d < 32 {
			return c.A>>d&1 != 0
		}
		return c.B>>(d-32)&1 != 0
	case op.CondPrecedence:
		return p.Version == 4 && uint32(p.TOS>>5) == c.A
	}
	return false
}

// fragBits returns the fragment bits of a packet as rules name them.
func fragBits(p *packet.Packet) uint32 {
	var b uint32
	if p.Frag&packet.FragLater != 0 {
		b |= op.FragOffset
	}
	if p.Frag&packet.FragMF != 0 {
		b |= op.FragMF
	}
	if p.Frag&packet.FragDF != 0 {
		b |= op.FragDF
	}
	if p.Frag&packet.FragRF != 0 {
		b |= op.FragRF
	}
	return b
}

func (j *job) inRanges(c *program.Cond, v uint32) bool {
	for _, r := range j.cfg.prog.Ranges[c.A : c.A+uint32(c.N)] {
		if r.Lo <= v && v <= r.Hi {
			return true
		}
	}
	return false
}

func (j *job) within(c *program.Cond, ip *[16]byte) bool {
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
func (j *job) member(c *program.Cond, ip *[16]byte) bool {
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

// recv is the interface that the packet came in by. What leaves by the tunnel has none.
func (j *job) recv() uint32 {
	h := &j.in.Hook
	if h.Dir == firewall.Out && h.Recv != 0 {
		if f := j.cfg.host.iface(h.Xmit); f != nil && f.tunnel {
			return 0
		}
	}
	return h.Recv
}

// onInterface compares an interface; kind is the distance from CondRecv, CondXmit or CondVia:
// exact, glob, any, address.
func (j *job) onInterface(c *program.Cond, kind op.Cond, index uint32) bool {
	if kind == op.CondRecvAny-op.CondRecv {
		return index != 0
	}
	f := j.cfg.host.iface(index)
	if f == nil {
		return false
	}
	switch kind {
	case 0:
		return f.name == int32(c.A)
	case op.CondRecvGlob - op.CondRecv:
		return f.globs>>c.A&1 != 0
	}
	for _, a := range f.addrs {
		if a == j.cfg.prog.Prefixes[c.A].Addr() {
			return true
		}
	}
	return false
}

func (j *job) tagged(c *program.Cond) bool {
	for _, t := range j.tags[:j.ntags] {
		if j.inRanges(c, uint32(t)) {
			return true
		}
	}
	return false
}

// path evaluates the conditions about routes. They are true for outgoing packets and, as in ipfw,
// for packets without an incoming interface.
func (j *job) path(cond op.Cond) bool {
	p, h, recv := j.p, j.cfg.host, j.in.Hook.Recv
	if j.in.Hook.Dir == firewall.Out || recv == 0 {
		return true
	}
	v4 := p.Version == 4
	hi, lo := p.SrcWords()
	switch cond {
	case op.CondVerRevPath:
		return h.reverse(hi, lo, v4, recv)
	case op.CondVerSrcReach:
		return h.reachable(hi, lo, v4)
	}
	return !h.spoofed(hi, lo, v4, recv)
}
