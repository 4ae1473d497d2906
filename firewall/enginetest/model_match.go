package enginetest

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
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
	case op.CondTrue:
		return true
	case op.CondVersion:
		return uint32(p.Version) == t.A
	case op.CondProto:
		return uint32(p.Proto) == t.A
	case op.CondSrcIn:
		return inPrefixes(t.Prefixes, p.Src())
	case op.CondDstIn:
		return inPrefixes(t.Prefixes, p.Dst())
	case op.CondSrcMe:
		return j.me(t, p.Src())
	case op.CondDstMe:
		return j.me(t, p.Dst())
	case op.CondSrcTable:
		return j.member(t, p.Src())
	case op.CondDstTable:
		return j.member(t, p.Dst())
	case op.CondSrcPort:
		return p.HasPorts() && inRanges(t.Ranges, uint32(p.SrcPort()))
	case op.CondDstPort:
		return p.HasPorts() && inRanges(t.Ranges, uint32(p.DstPort()))
	case op.CondIn:
		return j.in.Hook.Dir == firewall.In
	case op.CondOut:
		return j.in.Hook.Dir == firewall.Out
	case op.CondFlags:
		return tcp && uint32(p.TCPFlags)&t.B == t.A
	case op.CondEstab:
		return tcp && p.TCPFlags&(packet.FlagRST|packet.FlagACK) != 0
	case op.CondSeq:
		return tcp && p.Seq == t.A
	case op.CondAck:
		return tcp && p.Ack == t.A
	case op.CondWin:
		return tcp && inRanges(t.Ranges, uint32(p.Window()))
	case op.CondFrag:
		bits := uint32(0)
		for _, f := range []struct {
			in  uint8
			out uint32
		}{{packet.FragLater, op.FragOffset}, {packet.FragMF, op.FragMF},
			{packet.FragDF, op.FragDF}, {packet.FragRF, op.FragRF}} {
			if p.Frag&f.in != 0 {
				bits |= f.out
			}
		}
		return bits&t.B == t.A
	case op.CondICMPType:
		return p.Version == 4 && p.IsICMP() && inRanges(t.Ranges, uint32(p.ICMPType()))
	case op.CondICMP6Type:
		return p.Version == 6 && p.IsICMP() && inRanges(t.Ranges, uint32(p.ICMPType()))
	case op.CondTTL:
		return inRanges(t.Ranges, uint32(p.TTL))
	case op.CondLen:
		return inRanges(t.Ranges, p.Len())
	case op.CondID:
		return p.Version == 4 && inRanges(t.Ranges, p.IPID)
	case op.CondIPOptions:
		return p.Version == 4 && uint32(p.IPOptions)&t.B == t.A
	case op.CondTOS:
		return p.Version == 4 && uint32(p.TOS)&t.B == t.A
	case op.CondDSCP:
		return (uint64(t.A)|uint64(t.B)<<32)>>(p.TOS>>2)&1 != 0
	case op.CondPrecedence:
		return p.Version == 4 && uint32(p.TOS>>5) == t.A
	case op.CondTagged:
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
	case op.CondRecv, op.CondRecvGlob, op.CondRecvAny, op.CondRecvAddr:
		return j.iface(t, op.CondRecv, h.Recv)
	case op.CondXmit, op.CondXmitGlob, op.CondXmitAny, op.CondXmitAddr:
		return j.iface(t, op.CondXmit, xmit)
	case op.CondVia, op.CondViaGlob, op.CondViaAny, op.CondViaAddr:
		return j.iface(t, op.CondVia, via)
	case op.CondVerRevPath:
		r, ok := j.route(src)
		return outgoing || ok && !r.Blackhole && r.Interface == h.Recv
	case op.CondVerSrcReach:
		r, ok := j.route(src)
		return outgoing || ok && !r.Blackhole && r.Dst.Bits() > 0
	case op.CondAntiSpoof:
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

// me tests the words me and me6.
func (j *job) me(t *rule.Test, a netip.Addr) bool { return (t.A != 6 || a.Is6()) && j.isMine(a) }

// isMine reports whether the address is one of the host's, or one that it has as a router or by a
// local route.
func (j *job) isMine(a netip.Addr) bool {
	for _, i := range j.ifs {
		for _, p := range i.Addrs {
			router := i.Router6 && a.Is6() && p.Bits() < 127 && p.Masked().Addr() == a
			if p.Addr() == a || router {
				return true
			}
		}
		for _, p := range i.Local {
			if p.Contains(a) {
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
func (j *job) iface(t *rule.Test, exact op.Cond, index uint32) bool {
	if t.Op-exact == op.CondRecvAny-op.CondRecv {
		return index != 0
	}
	for _, i := range j.ifs {
		if i.Index != index {
			continue
		}
		switch t.Op - exact {
		case 0:
			return i.Name == t.Name
		case op.CondRecvGlob - op.CondRecv:
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
