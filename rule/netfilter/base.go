package netfilter

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// base writes one chain with a hook and its own copies of the chains that it jumps to.
type base struct {
	*writer
	chain   *chain
	accept  label    // where accepted packets go
	final   bool     // accepted packets pass: accept is 0
	order   []string // keys of the chains to write behind it
	entered map[string]kinds
	knownTo map[string]bool // chains to which packets of known flows may come in netfilter
	labels  map[string]label
	policy  label // the end of the chain
}

func (b *base) write(start kinds) {
	b.policy = b.label()
	if b.chain.name != "" {
		b.comment(fmt.Sprintf("Chain %s", b.chain.name))
	}
	b.rank(b.chain)
	left := b.list(&frame{rules: b.chain.rules}, start, b.policy, true)
	b.place(b.policy)
	end := &entry{kinds: anyKind, verdict: accept}
	if !b.chain.accept {
		end.verdict = drop
	}
	if left != 0 {
		if b.chain.name != "" {
			b.comment("policy of " + b.chain.name)
		}
		b.rule(end, left, 0)
	}
	for _, key := range b.order {
		kinds, called := b.entered[key]
		if !called {
			continue
		}
		c := b.set.byKey[key]
		b.place(b.labels[key])
		b.block = true
		b.comment("")
		b.comment("Chain " + c.name)
		f := &frame{rules: c.rules, noKnown: !b.knownTo[key]}
		if b.list(f, kinds, 0, false) != 0 {
			b.do(op.ActionReturn)
		}
	}
}

// rank fills order: every chain comes before those that it jumps to.
func (b *base) rank(top *chain) {
	done := map[*chain]bool{}
	var visit func(c *chain)
	visit = func(c *chain) {
		done[c] = true
		for _, e := range slices.Backward(c.rules) {
			if to := b.set.byKey[e.target]; to != nil && !done[to] && e.problem == "" {
				visit(to)
			}
		}
		b.order = append(b.order, c.key)
	}
	visit(top)
	slices.Reverse(b.order)
	b.order = b.order[1:]
}

// list writes rules, and returns the kinds of packets that reach their end. end is where return
// leads, 0 in a chain that was called. sure reports that all that is behind the rules is known.
func (b *base) list(f *frame, now kinds, end label, sure bool) kinds {
	returned := kinds(0)
	for i, e := range f.rules {
		f.at = i
		if sure && b.final && now&known != 0 && e.problem == "" &&
			b.knownPass(f, b.chain) {
			b.checkState()
			now &^= known
		}
		f.at = i + 1
		b.source(e)
		if e.problem != "" {
			b.comment("NOT CARRIED OVER: " + e.problem)
			b.set.leave(e)
			continue
		}
		to := b.set.byKey[e.target]
		switch {
		case now&e.kinds == 0 && e.kinds&^known == 0 && b.states:
			b.comment("known flows have passed above")
		case now&e.kinds == 0 || foreign(e.clauses, b.families):
			b.comment("no packet comes here")
		case e.verdict == jump && len(to.rules) == 0:
			b.comment("the chain is empty")
		case e.verdict == jump && e.unconditional() && now&^e.kinds == 0 && b.uses[e.target] == 1:
			after := b.label()
			now = b.list(&frame{rules: to.rules, up: f}, now, after, sure)
			b.place(after)
		default:
			if e.verdict == back || e.verdict == goTo {
				returned |= now & e.kinds
			}
			if to != nil && e.kinds&known != 0 && !f.knownGone() {
				b.knownTo[e.target] = true
			}
			if e.rate != nil {
				b.rated(e, f, now, end)
				continue
			}
			now = b.rule(e, now, end)
		}
	}
	f.at = len(f.rules)
	if sure && b.final && now&known != 0 && f.up == nil && b.knownPass(f, b.chain) {
		b.checkState()
		now &^= known
	}
	if end == 0 { // return has led out of the chain
		return now
	}
	return now | returned
}

// source writes the text of a rule as a comment.
func (b *base) source(e *entry) {
	if e.text != "" {
		b.comment(e.text)
	}
}

// callee returns the label of a chain that packets of these kinds are sent to.
func (b *base) callee(key string, k kinds) label {
	b.entered[key] |= k
	if b.labels[key] == 0 {
		b.labels[key] = b.label()
	}
	return b.labels[key]
}

// problem leaves a rule out that the writer cannot express.
func (b *base) problem(e *entry, format string, args ...any) {
	left := *e
	left.problem = fmt.Sprintf(format, args...)
	b.comment("NOT CARRIED OVER: " + left.problem)
	b.set.leave(&left)
}

// negated returns the clauses of which all are true when c is false.
func negated(c rule.Clause) (all []rule.Clause) {
	for _, t := range c {
		all = append(all, rule.Clause{not(t)})
	}
	return all
}
