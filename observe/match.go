package observe

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Match reports whether the filter picks an event. Tables and the host's addresses come from n.
// Gaps are always picked: any event can be missing.
func (f *Filter) Match(e *Event, n *Names) bool {
	if e.Kind == 0 {
		return true
	}
	if f.kinds != 0 && f.kinds>>e.Kind&1 == 0 {
		return false
	}
	if f.reasons != nil && !slices.Contains(f.reasons, e.Verdict.Reason) {
		return false
	}
	if f.rules != nil && !within(f.rules, uint32(e.Verdict.Rule)) {
		return false
	}
	for _, c := range f.clauses {
		if !anyOf(c, e, n) {
			return false
		}
	}
	return true
}

// anyOf reports whether a clause is true: one of its tests is.
func anyOf(c rule.Clause, e *Event, n *Names) bool {
	for i := range c {
		if test(&c[i], e, n) != c[i].Not {
			return true
		}
	}
	return len(c) == 0
}

func within(all []rule.Range, v uint32) bool {
	for _, r := range all {
		if r.Lo <= v && v <= r.Hi {
			return true
		}
	}
	return false
}

// answerable reports whether events have the fields that a condition needs.
func answerable(cond op.Cond) bool {
	switch cond {
	case op.CondFalse, op.CondTrue, op.CondVersion, op.CondProto, op.CondSrcIn, op.CondDstIn,
		op.CondSrcMe, op.CondDstMe, op.CondSrcTable, op.CondDstTable,
		op.CondSrcPort, op.CondDstPort, op.CondIn, op.CondOut,
		op.CondRecv, op.CondXmit, op.CondVia,
		op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob,
		op.CondRecvAny, op.CondXmitAny, op.CondViaAny,
		op.CondRecvAddr, op.CondXmitAddr, op.CondViaAddr,
		op.CondFlags, op.CondEstab, op.CondLen:
		return true
	}
	return false
}

// test evaluates one condition without its negation, as docs/design/0003-evaluation.md specifies it
// for packets.
func test(t *rule.Test, e *Event, n *Names) bool {
	src, dst := e.Src.Addr(), e.Dst.Addr()
	switch t.Op {
	case op.CondTrue:
		return true
	case op.CondVersion:
		return src.Is4() && t.A == 4 || src.Is6() && t.A == 6
	case op.CondProto:
		return uint32(e.Proto) == t.A
	case op.CondSrcIn:
		return contains(t.Prefixes, src)
	case op.CondDstIn:
		return contains(t.Prefixes, dst)
	case op.CondSrcMe:
		return me(t, src, n)
	case op.CondDstMe:
		return me(t, dst, n)
	case op.CondSrcTable:
		return inTable(t, src, n)
	case op.CondDstTable:
		return inTable(t, dst, n)
	case op.CondSrcPort:
		return e.Proto.HasPorts() && within(t.Ranges, uint32(e.Src.Port()))
	case op.CondDstPort:
		return e.Proto.HasPorts() && within(t.Ranges, uint32(e.Dst.Port()))
	case op.CondIn:
		return e.Hook.Dir == firewall.In
	case op.CondOut:
		return e.Hook.Dir == firewall.Out
	case op.CondFlags:
		return e.Proto == packet.ProtoTCP && uint32(e.TCPFlags)&t.B == t.A
	case op.CondEstab:
		return e.Proto == packet.ProtoTCP && e.TCPFlags&(packet.FlagRST|packet.FlagACK) != 0
	case op.CondLen:
		return within(t.Ranges, e.Length)
	}
	return testInterface(t, e, n)
}

func testInterface(t *rule.Test, e *Event, n *Names) bool {
	via := e.Recv
	if e.Hook.Dir == firewall.Out {
		via = e.Xmit
	}
	switch t.Op {
	case op.CondRecv, op.CondRecvGlob, op.CondRecvAny, op.CondRecvAddr:
		via = e.Recv
	case op.CondXmit, op.CondXmitGlob, op.CondXmitAny, op.CondXmitAddr:
		via = e.Xmit
	}
	if via == "" {
		return false
	}
	switch t.Op {
	case op.CondRecv, op.CondXmit, op.CondVia:
		return via == t.Name
	case op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob:
		return rule.Glob(t.Name, via)
	case op.CondRecvAny, op.CondXmitAny, op.CondViaAny:
		return true
	case op.CondRecvAddr, op.CondXmitAddr, op.CondViaAddr:
		return n.InterfaceHas != nil && len(t.Prefixes) == 1 &&
			n.InterfaceHas(via, t.Prefixes[0].Addr())
	}
	return false
}

func contains(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func me(t *rule.Test, a netip.Addr, n *Names) bool {
	return n.Me != nil && (t.A != 6 || a.Is6()) && n.Me(a)
}

func inTable(t *rule.Test, a netip.Addr, n *Names) bool {
	if n.Table == nil {
		return false
	}
	value, found := n.Table(t.Name, a)
	return found && (!t.HasValue || value == t.Value)
}
