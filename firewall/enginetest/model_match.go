package enginetest

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// matches reports whether every clause of the rule is true. A clause is true when one of its tests
// is.
func (j *job) matches(r *rule.Rule) bool {
	for _, clause := range r.Clauses() {
		any := false
		for _, t := range clause {
			is := j.test(&t)
			j.seen.test(&t, is)
			if is != t.Not {
				any = true
			}
		}
		if !any {
			return false
		}
	}
	return true
}

// test evaluates one test without its not.
func (j *job) test(t *rule.Test) bool {
	p := &j.p
	tcp := p.Proto == packet.ProtoTCP && p.HasPorts()
	switch t.Op {
	case rule.OpTrue:
		return true
	case rule.OpVersion:
		return uint32(p.Version) == t.A
	case rule.OpProto:
		return uint32(p.Proto) == t.A
	case rule.OpSrcIn:
		return inPrefixes(t.Prefixes, p.Src())
	case rule.OpDstIn:
		return inPrefixes(t.Prefixes, p.Dst())
	case rule.OpSrcMe:
		return j.me(t, p.Src())
	case rule.OpDstMe:
		return j.me(t, p.Dst())
	case rule.OpSrcTable:
		return j.member(t, p.Src())
	case rule.OpDstTable:
		return j.member(t, p.Dst())
	case rule.OpSrcPort:
		return p.HasPorts() && inRanges(t.Ranges, uint32(p.SrcPort()))
	case rule.OpDstPort:
		return p.HasPorts() && inRanges(t.Ranges, uint32(p.DstPort()))
	case rule.OpIn:
		return j.in.Hook.Dir == firewall.In
	case rule.OpOut:
		return j.in.Hook.Dir == firewall.Out
	case rule.OpFlags:
		return tcp && uint32(p.TCPFlags)&t.B == t.A
	case rule.OpEstab:
		return tcp && p.TCPFlags&(packet.FlagRST|packet.FlagACK) != 0
	case rule.OpSeq:
		return tcp && p.Seq == t.A
	case rule.OpAck:
		return tcp && p.Ack == t.A
	case rule.OpWin:
		return tcp && inRanges(t.Ranges, uint32(p.Window()))
	case rule.OpFrag:
		bits := uint32(0)
		for _, f := range []struct {
			in  uint8
			out uint32
		}{{packet.FragLater, rule.FragOffset}, {packet.FragMF, rule.FragMF},
			{packet.FragDF, rule.FragDF}, {packet.FragRF, rule.FragRF}} {
			if p.Frag&f.in != 0 {
				bits |= f.out
			}
		}
		return bits&t.B == t.A
	case rule.OpICMPType:
		return p.Version == 4 && p.IsICMP() && inRanges(t.Ranges, uint32(p.ICMPType()))
	case rule.OpICMP6Type:
		return p.Version == 6 && p.IsICMP() && inRanges(t.Ranges, uint32(p.ICMPType()))
	case rule.OpTTL:
		return inRanges(t.Ranges, uint32(p.TTL))
	case rule.OpLen:
		return inRanges(t.Ranges, p.Len())
	case rule.OpID:
		return p.Version == 4 && inRanges(t.Ranges, p.IPID)
	case rule.OpIPOptions:
		return p.Version == 4 && uint32(p.IPOptions)&t.B == t.A
	case rule.OpTOS:
		return p.Version == 4 && uint32(p.TOS)&t.B == t.A
	case rule.OpDSCP:
		return (uint64(t.A)|uint64(t.B)<<32)>>(p.TOS>>2)&1 != 0
	case rule.OpPrecedence:
		return p.Version == 4 && uint32(p.TOS>>5) == t.A
	case rule.OpTagged:
		for _, tag := range j.tags {
			if inRanges(t.Ranges, uint32(tag)) {
				return true
			}
		}
		return false
	}
	return j.testInterface(t)
}

// testInterface evaluates the tests about interfaces and routes.
func (j *job) testInterface(t *rule.Test) bool {
	h := j.in.Hook
	xmit := h.Xmit
	if h.Dir == firewall.In {
		xmit = 0
	}
	via := h.Recv
	if h.Dir == firewall.Out {
		via = xmit
	}
	src := j.p.Src()
	outgoing := h.Dir == firewall.Out || h.Recv == 0
	switch t.Op {
	case rule.OpRecv, rule.OpRecvGlob, rule.OpRecvAny, rule.OpRecvAddr:
		return j.iface(t, rule.OpRecv, h.Recv)
	case rule.OpXmit, rule.OpXmitGlob, rule.OpXmitAny, rule.OpXmitAddr:
		return j.iface(t, rule.OpXmit, xmit)
	case rule.OpVia, rule.OpViaGlob, rule.OpViaAny, rule.OpViaAddr:
		return j.iface(t, rule.OpVia, via)
	case rule.OpVerRevPath:
		r, ok := j.route(src)
		return outgoing || ok && !r.Blackhole && r.Interface == h.Recv
	case rule.OpVerSrcReach:
		r, ok := j.route(src)
		return outgoing || ok && !r.Blackhole && r.Dst.Bits() > 0
	case rule.OpAntiSpoof:
		return outgoing || !j.spoofed(src)
	}
	return false
}

func inPrefixes(ps []netip.Prefix, a netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func inRanges(rs []rule.Range, v uint32) bool {
	for _, r := range rs {
		if r.Lo <= v && v <= r.Hi {
			return true
		}
	}
	return false
}

// me reports whether the address is one of the host's.
func (j *job) me(t *rule.Test, a netip.Addr) bool {
	if t.A == 6 && !a.Is6() {
		return false
	}
	for _, i := range j.ifs {
		for _, p := range i.Addrs {
			if p.Addr() == a {
				return true
			}
		}
	}
	return false
}

// member reports whether the longest prefix of a table that holds the address has the wanted value.
func (j *job) member(t *rule.Test, a netip.Addr) bool {
	bits, value := -1, uint32(0)
	for _, e := range j.tables[t.Name] {
		if e.Prefix.Contains(a) && e.Prefix.Bits() > bits {
			bits, value = e.Prefix.Bits(), e.Value
		}
	}
	return bits >= 0 && (!t.HasValue || value == t.Value)
}

// iface compares an interface; exact is the exact form of the test's word.
func (j *job) iface(t *rule.Test, exact rule.CondOp, index uint32) bool {
	if t.Op-exact == rule.OpRecvAny-rule.OpRecv {
		return index != 0
	}
	for _, i := range j.ifs {
		if i.Index != index {
			continue
		}
		switch t.Op - exact {
		case 0:
			return i.Name == t.Name
		case rule.OpRecvGlob - rule.OpRecv:
			return rule.Glob(t.Name, i.Name)
		}
		for _, p := range i.Addrs {
			if p.Addr() == t.Prefixes[0].Addr() {
				return true
			}
		}
	}
	return false
}

// route returns the best route to an address.
func (j *job) route(a netip.Addr) (best firewall.Route, ok bool) {
	for _, r := range j.routes {
		if r.Dst.Contains(a) && (!ok || r.Dst.Bits() > best.Dst.Bits()) {
			best, ok = r, true
		}
	}
	return best, ok
}

// spoofed reports whether the longest connected network that holds the address is that of other
// interfaces only.
func (j *job) spoofed(a netip.Addr) bool {
	bits, ours := -1, false
	for _, i := range j.ifs {
		for _, p := range i.Addrs {
			if !p.Contains(a) || p.Bits() < bits {
				continue
			}
			if p.Bits() > bits {
				bits, ours = p.Bits(), false
			}
			ours = ours || i.Index == j.in.Hook.Recv
		}
	}
	return bits >= 0 && !ours
}
