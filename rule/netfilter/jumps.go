package netfilter

import (
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// jumps bounds from above how many jumps a packet takes through imported rules: they make states
// only when they let it pass. It does not know which conditions exclude each other, and leaves the
// check-states at the end out, which begin at the number checks: of the rules that call them a
// packet seldom matches several, since it ends at the first that it matches, unless it neither
// belongs to a flow nor begins one.
func jumps(rules []*rule.Rule, checks uint32) int {
	var inner []ways
	for depth := program.MaxCalls; depth >= 0; depth-- {
		inner = jumpsFrom(rules, checks, inner, depth == 0)
	}
	return inner[0].ends
}

// ways are the most jumps from a rule on: to one that ends the walk, and to a return; negative for
// what cannot be.
type ways struct{ ends, returns int }

// mostJumps bounds what is counted.
const mostJumps = 1 << 20

func (w ways) or(o ways) ways { return ways{max(w.ends, o.ends), max(w.returns, o.returns)} }

// after returns the ways behind so many jumps.
func (w ways) after(n int) ways { return ways{sum(w.ends, n), sum(w.returns, n)} }

func sum(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return min(a+b, mostJumps)
}

// jumpsFrom returns the ways from each rule at one depth of calls. inner are those one call deeper,
// nil where no call is made any more.
func jumpsFrom(rules []*rule.Rule, checks uint32, inner []ways, outermost bool) []ways {
	w := make([]ways, len(rules)+1)
	w[len(rules)] = ways{0, -1} // the default rule
	for i, r := range slices.Backward(rules) {
		next := w[i+1]
		var matches ways
		to := target(rules, r.Action.Arg)
		switch r.Action.Op {
		case op.ActionCount, op.ActionCheckState:
			matches = next
		case op.ActionSkipTo:
			matches = w[to].after(1)
		case op.ActionReturn:
			matches = ways{-1, 1}
			if outermost {
				matches = next
			}
		case op.ActionCall:
			matches = next
			if inner != nil && r.Action.Arg < checks {
				matches = ways{sum(inner[to].ends, 1), -1}.or(next.after(sum(inner[to].returns, 1)))
			}
		default:
			matches = ways{0, -1}
		}
		if w[i] = matches; !always(r) {
			w[i] = matches.or(next)
		}
	}
	return w
}

// target returns the index of the first rule with a number or above.
func target(rules []*rule.Rule, number uint32) int {
	i, _ := slices.BinarySearchFunc(rules, number, func(r *rule.Rule, n uint32) int {
		return int(r.Number) - int(n)
	})
	return i
}

// always reports whether every packet matches a rule.
func always(r *rule.Rule) bool {
	for _, c := range slices.Concat(r.Clauses()...) {
		if c.Op != op.CondTrue || c.Not {
			return false
		}
	}
	return r.Prob == 0 && r.Rate == rule.Rate{}
}
