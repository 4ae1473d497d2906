package netfilter

import (
	"slices"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// kinds is a set of what conntrack calls the state of a packet.
type kinds uint8

const (
	established kinds = 1 << iota // of a known flow
	related                       // an ICMP error about a known flow
	fresh                         // the first packet of a flow: "new"
	invalid                       // of no known flow, and it cannot begin one
	untracked                     // ICMPv6 that conntrack leaves alone
	anyKind     = established | related | fresh | invalid | untracked
	known       = established | related
)

var kindNames = map[string]kinds{"established": established, "related": related, "new": fresh,
	"invalid": invalid, "untracked": untracked}

// Types of ICMP by what they are to conntrack.
var (
	queries4   = ranges(8, 8, 13, 13, 15, 15, 17, 17)
	queries6   = ranges(128, 128, 139, 139)
	errors4    = ranges(3, 5, 11, 12)
	errors6    = ranges(1, 4)
	untracked6 = ranges(130, 136, 143, 143)
)

func ranges(pairs ...uint32) (all []rule.Range) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, rule.Range{Lo: pairs[i], Hi: pairs[i+1]})
	}
	return all
}

func proto(p packet.Proto) rule.Test { return rule.Test{Op: op.CondProto, A: uint32(p)} }

func icmpTypes(p packet.Proto, r []rule.Range) rule.Test {
	if p == packet.ProtoICMP {
		return rule.Test{Op: op.CondICMPType, Ranges: r}
	}
	return rule.Test{Op: op.CondICMP6Type, Ranges: r}
}

// noPacket is true for no packet.
var noPacket = rule.Test{Op: op.CondTrue, Not: true}

func not(t rule.Test) rule.Test {
	t.Not = !t.Not
	return t
}

// TCP flags as package rule has them.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
	tcpURG
)

var setup = rule.Test{Op: op.CondFlags, A: tcpSYN, B: tcpSYN | tcpACK}

// only returns the one protocol that the clauses let match, or 0.
func only(clauses []rule.Clause) packet.Proto {
	for _, c := range clauses {
		if len(c) == 1 && !c[0].Not {
			switch c[0].Op {
			case op.CondProto:
				return packet.Proto(c[0].A)
			case op.CondICMPType:
				return packet.ProtoICMP
			case op.CondICMP6Type:
				return packet.ProtoICMPv6
			case op.CondFlags:
				return packet.ProtoTCP
			}
		}
	}
	return 0
}

// mayBe reports whether a packet of the protocol can match the clauses.
func mayBe(clauses []rule.Clause, p packet.Proto, families int) bool {
	if p == packet.ProtoICMP && families&ipv4 == 0 || p == packet.ProtoICMPv6 &&
		families&ipv6 == 0 {
		return false
	}
	if is := only(clauses); is != 0 {
		return is == p
	}
	for _, c := range clauses {
		possible := len(c) == 0
		for _, t := range c {
			switch t.Op {
			case op.CondProto:
				possible = possible || (t.A == uint32(p)) != t.Not
			case op.CondSrcPort, op.CondDstPort:
				possible = possible || t.Not || p != packet.ProtoICMP && p != packet.ProtoICMPv6
			case op.CondVersion:
				possible = possible || t.Not || (t.A == 4 || p != packet.ProtoICMP) &&
					(t.A == 6 || p != packet.ProtoICMPv6)
			default:
				possible = true
			}
		}
		if !possible {
			return false
		}
	}
	return true
}

// foreign reports whether the clauses are about packets of another family.
func foreign(clauses []rule.Clause, families int) bool {
	for _, c := range clauses {
		if len(c) != 1 || c[0].Not {
			continue
		}
		switch c[0].Op { // a protocol number of its own can stand in a packet of either family
		case op.CondICMPType:
			return families&ipv4 == 0
		case op.CondICMP6Type:
			return families&ipv6 == 0
		case op.CondVersion:
			return families == ipv4 && c[0].A == 6 || families == ipv6 && c[0].A == 4
		}
	}
	return false
}

// begins returns the clauses that are true for what may begin a flow, if clauses are true. A TCP
// flow begins with a SYN: what net.netfilter.nf_conntrack_tcp_loose picks up in mid-stream does
// not count. last reports that all that match the clauses may begin a flow, so that nothing is
// left behind them.
func begins(clauses []rule.Clause, families int) (more []rule.Clause, last bool) {
	exact := only(clauses)
	last = true
	for _, k := range []struct {
		proto packet.Proto
		test  rule.Test
	}{
		{packet.ProtoTCP, setup},
		{packet.ProtoICMP, icmpTypes(packet.ProtoICMP, queries4)},
		{packet.ProtoICMPv6, icmpTypes(packet.ProtoICMPv6, queries6)},
	} {
		switch {
		case !mayBe(clauses, k.proto, families):
		case exact == k.proto && all(clauses, k.test):
		case exact == k.proto:
			more, last = append(more, rule.Clause{k.test}), false
		default:
			more, last = append(more, rule.Clause{not(proto(k.proto)), k.test}), false
		}
	}
	return more, last
}

// all reports whether every packet that matches the clauses passes the test, as far as it is
// obvious.
func all(clauses []rule.Clause, t rule.Test) bool {
	for _, c := range clauses {
		if len(c) != 1 || c[0].Op != t.Op || c[0].Not {
			continue
		}
		if t.Op == op.CondFlags && c[0].A&t.B == t.A && c[0].B&t.B == t.B {
			return true
		}
		if t.Op != op.CondFlags && within(c[0].Ranges, t.Ranges) {
			return true
		}
	}
	return false
}

// never reports whether no packet that matches the clauses passes the test, as far as it is
// obvious.
func never(clauses []rule.Clause, t rule.Test) bool {
	for _, c := range clauses {
		if len(c) != 1 || c[0].Op != t.Op || c[0].Not {
			continue
		}
		if t.Op == op.CondFlags {
			if both := c[0].B & t.B; c[0].A&both != t.A&both {
				return true
			}
		} else if apart(c[0].Ranges, t.Ranges) {
			return true
		}
	}
	return false
}

func within(a, b []rule.Range) bool {
	for _, x := range a {
		inside := false
		for _, y := range b {
			inside = inside || x.Lo >= y.Lo && x.Hi <= y.Hi
		}
		if !inside {
			return false
		}
	}
	return true
}

func apart(a, b []rule.Range) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Lo <= y.Hi && y.Lo <= x.Hi {
				return false
			}
		}
	}
	return true
}

// invalids returns the alternatives of clauses that together are true for what belongs to no flow
// and cannot begin one.
func invalids(clauses []rule.Clause, families int) (alternatives [][]rule.Clause) {
	exact := only(clauses)
	for _, k := range []struct {
		proto packet.Proto
		valid rule.Test
	}{
		{packet.ProtoTCP, setup},
		{packet.ProtoICMP, icmpTypes(packet.ProtoICMP, queries4)},
		{packet.ProtoICMPv6, icmpTypes(packet.ProtoICMPv6, slices.Concat(queries6, untracked6))},
	} {
		if !mayBe(clauses, k.proto, families) || all(clauses, k.valid) {
			continue
		}
		var more []rule.Clause
		if exact == 0 {
			more = append(more, rule.Clause{proto(k.proto)})
		}
		if !never(clauses, k.valid) {
			more = append(more, rule.Clause{not(k.valid)})
		}
		alternatives = append(alternatives, more)
	}
	return alternatives
}
