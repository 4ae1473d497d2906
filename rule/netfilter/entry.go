package netfilter

import (
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// rule writes one rule, and returns the kinds of packets that reach the next. Packets of the kinds
// now come to it.
func (b *base) rule(e *entry, now kinds, end label) kinds {
	k := now & e.kinds
	if e.prob != 0 && (b.states || e.kinds != anyKind || e.verdict == goTo) {
		next := b.label()
		b.add(rule.Rule{Prob: 1 - e.prob, Action: rule.Action{Op: op.ActionSkipTo}}).to = next
		defer b.place(next)
		once := *e
		once.prob = 0
		b.rule(&once, now, end)
		return now
	}
	if !b.some(e, now, k, end) {
		return now
	}
	if e.unconditional() && (e.final() || e.verdict == goTo || e.verdict == back) {
		now &^= e.kinds
	}
	return now
}

// some writes one rule for packets of the kinds k out of now, and reports whether it could.
func (b *base) some(e *entry, now, k kinds, end label) bool {
	whole := now&^e.kinds == 0
	decides := e.verdict == accept && b.final && b.states
	if why := b.entangled(e, now, k, decides); why != "" && (decides || !whole) {
		b.problem(e, "%s", why)
		return false
	}
	switch {
	case decides:
		if k&known != 0 && (len(e.clauses) > 0 || !whole) {
			b.guarded(e, k)
		} else if k&known != 0 {
			b.checkKinds(k, nil)
		}
		b.allow(e, now&^known, k&^known)
	case whole:
		b.write1(e, k, end)
	default:
		b.parts(e, now, k, end)
	}
	return true
}

// entangled returns why a rule for packets of some kinds cannot be written where packets of known
// flows come along, "" if it can. Nothing but a check-state tells them apart, and that lets them
// pass: a rule that decides to has one in front.
func (b *base) entangled(e *entry, now, k kinds, decides bool) string {
	const asks = "it asks for packets of known flows, and a rule cannot do that without letting " +
		"them pass"
	const apart = "known flows are not separated before it: no rule in front of it or behind it " +
		"accepts them all"
	const midstream = "it is about TCP segments in mid-stream of unknown flows, and known flows " +
		"are not separated before it"
	if !decides && k&known != 0 {
		return asks
	}
	is := only(e.clauses)
	switch along := now & known &^ k; {
	case along == 0:
	case along == related: // ICMP errors, which begin no flow
		if k&invalid != 0 && (mayBe(e.clauses, packet.ProtoICMP, b.families) ||
			mayBe(e.clauses, packet.ProtoICMPv6, b.families)) {
			return apart
		}
	case k&invalid != 0 || k&fresh != 0 && is != packet.ProtoTCP:
		return apart
	case k&fresh != 0 && never(e.clauses, setup):
		return midstream
	}
	return ""
}

// parts writes a rule for some of the kinds of packets without a known flow.
func (b *base) parts(e *entry, now, k kinds, end label) {
	part := func(more []rule.Clause, is kinds) {
		one := *e
		one.clauses = append(append([]rule.Clause{}, e.clauses...), more...)
		b.write1(&one, is, end)
	}
	if k&fresh != 0 {
		var more []rule.Clause
		if now&(invalid|known) != 0 {
			more, _ = begins(e.clauses, b.families)
			if now&known == 0 && (e.verdict == drop || e.verdict == reject) {
				more = withMidstream(more)
			}
		}
		part(more, k&fresh)
	}
	if k&invalid != 0 {
		for _, more := range invalids(e.clauses, b.families) {
			part(more, k&invalid)
		}
	}
	if k&untracked != 0 && mayBe(e.clauses, packet.ProtoICMPv6, b.families) {
		part([]rule.Clause{{icmpTypes(packet.ProtoICMPv6, untracked6)}}, k&untracked)
	}
}

// withMidstream makes the clauses of begins true for TCP segments in mid-stream, too. Netfilter
// takes them for new flows unless a setting forbids it, so a rule that refuses new flows refuses
// them.
func withMidstream(more []rule.Clause) []rule.Clause {
	ack := rule.Test{Op: op.CondFlags, A: tcpACK, B: tcpACK | tcpSYN | tcpFIN | tcpRST}
	for i, c := range more {
		if t := c[len(c)-1]; t.Op == op.CondFlags {
			more[i] = append(append(rule.Clause{}, c...), ack)
		}
	}
	return more
}

// allow writes a rule that lets packets pass that belong to no known flow, and makes states for
// those that begin one.
func (b *base) allow(e *entry, now, k kinds) {
	r := rule.Rule{Action: rule.Action{Op: op.ActionAllow}, Comment: e.comment, Log: e.log}
	if k&fresh == 0 {
		one := *e
		if k != 0 {
			b.parts(&one, now, k, 0)
		}
		return
	}
	making := r
	making.State = b.keep()
	more, last := begins(e.clauses, b.families)
	impossible := false
	for _, t := range []rule.Test{setup, icmpTypes(packet.ProtoICMP, queries4),
		icmpTypes(packet.ProtoICMPv6, queries6)} {
		impossible = impossible || never(e.clauses, t)
	}
	if now&invalid == 0 {
		if only(e.clauses) != packet.ProtoTCP {
			more = nil
		}
		if impossible {
			making = r
		}
		b.add(making, e.clauses, more)
		return
	}
	if !impossible {
		b.add(making, e.clauses, more)
	}
	switch {
	case k&invalid != 0 && !last:
		b.add(r, e.clauses)
	case k&untracked != 0 && mayBe(e.clauses, packet.ProtoICMPv6, b.families) &&
		!never(e.clauses, icmpTypes(packet.ProtoICMPv6, untracked6)):
		b.add(r, e.clauses, []rule.Clause{{icmpTypes(packet.ProtoICMPv6, untracked6)}})
	}
}

// write1 writes one rule with the conditions that the entry has.
func (b *base) write1(e *entry, k kinds, end label) {
	r := rule.Rule{Prob: e.prob, Comment: e.comment, Log: e.log}
	send := func(a op.Action, to label) {
		r.Action.Op = a
		b.add(r, e.clauses).to = to
	}
	switch e.verdict {
	case accept:
		if b.accept != 0 {
			send(op.ActionSkipTo, b.accept)
		} else {
			send(op.ActionAllow, 0)
		}
	case drop:
		send(op.ActionDeny, 0)
	case reject:
		for _, a := range e.code.actions(b.families, only(e.clauses)) {
			r.Action = a.action
			b.add(r, e.clauses, a.clauses)
		}
	case proceed:
		send(op.ActionCount, 0)
	case jump:
		send(op.ActionCall, b.callee(e.target, k))
	case goTo:
		if end == 0 {
			send(op.ActionSkipTo, b.callee(e.target, k))
			return
		}
		send(op.ActionCall, b.callee(e.target, k))
		send(op.ActionSkipTo, end)
	case back:
		if end == 0 {
			send(op.ActionReturn, 0)
		} else {
			send(op.ActionSkipTo, end)
		}
	}
}
