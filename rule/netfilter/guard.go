package netfilter

import (
	"math"
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// guarded writes a check-state for the packets that match a rule. It stands at the end of the rules
// and is called there: a packet jumps only at rules that it matches, and of jumps it has
// program.MaxJumps. Where chains call as deep as rules can, it stands here, behind jumps of all
// others.
func (b *base) guarded(e *entry, k kinds) {
	if len(e.clauses) > 0 && b.set.depth < program.MaxCalls {
		b.add(rule.Rule{Action: rule.Action{Op: op.ActionCall}}, e.clauses).to = b.check(k & known)
		return
	}
	next := b.label()
	for _, c := range e.clauses {
		b.skip(next, negated(c))
	}
	b.checkKinds(k, e.clauses)
	b.place(next)
}

// check is a check-state that rules call: for packets of some families, of known flows of some
// kinds.
type check struct {
	families int
	kinds    kinds
}

// check returns the label of a check-state that checks writes.
func (w *writer) check(k kinds) label {
	c := check{w.families, k}
	if k == known { // which does not ask for the type of ICMP
		c.families = bothFamilies
	}
	if w.checked[c] == 0 {
		w.checked[c] = w.label()
		w.asked = append(w.asked, c)
	}
	return w.checked[c]
}

// checks writes the check-states that are called. Behind them there is nothing, so that a call
// makes the longest walk hardly longer.
func (w *writer) checks() {
	if len(w.asked) == 0 {
		return
	}
	if len(w.here) > 0 { // something jumps behind the last rule
		w.do(op.ActionDeny)
	}
	w.begin(0, "Packets of known flows, for rules that let them pass among others.")
	for _, c := range w.asked {
		w.place(w.checked[c])
		w.families = c.families
		w.checkKinds(c.kinds, nil)
		w.do(op.ActionReturn)
	}
}

// checksAt returns the number of the first rule that checks has written, more than all others
// without one.
func (w *writer) checksAt() uint32 {
	for _, l := range w.lines {
		if len(w.asked) > 0 && slices.Contains(l.at, w.checked[w.asked[0]]) {
			return uint32(l.rule.Number)
		}
	}
	return math.MaxUint16
}

// checkKinds writes a check-state for established or related packets or both, of those that match
// the clauses.
func (w *writer) checkKinds(k kinds, clauses []rule.Clause) {
	next := w.label()
	var is rule.Clause
	if w.families&ipv4 != 0 {
		is = append(is, icmpTypes(packet.ProtoICMP, errors4))
	}
	if w.families&ipv6 != 0 {
		is = append(is, icmpTypes(packet.ProtoICMPv6, errors6))
	}
	icmp := mayBe(clauses, packet.ProtoICMP, w.families) ||
		mayBe(clauses, packet.ProtoICMPv6, w.families)
	switch {
	case k&known == established && icmp:
		w.skip(next, []rule.Clause{is})
	case k&known == related:
		w.skip(next, negated(is))
	}
	w.checkState()
	w.place(next)
}
