package netfilter

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// jumps bounds from above how many jumps a packet takes through imported rules: they make states
// only when they let it pass. It does not know which conditions exclude each other, and leaves the
// check-states at the end out, which begin at the number checks (mostChecks).
func jumps(rules []*rule.Rule, checks uint32) int {
	var inner []ways
	for depth := program.MaxCalls; depth >= 0; depth-- {
		inner = jumpsFrom(rules, checks, inner, depth == 0)
	}
	return inner[0].ends
}

// mostChecks bounds from above how many of the rules that call a check-state at the end one packet
// matches, if it comes to each of them once. Only a packet that neither belongs to a flow nor
// begins one matches several: another one ends at the first. Rules for different ports or addresses
// exclude each other.
func mostChecks(rules []*rule.Rule, checks uint32) int {
	var calls []*rule.Rule
	for _, r := range rules {
		if r.Action.Op == op.ActionCall && r.Action.Arg >= checks {
			calls = append(calls, r)
		}
	}
	most := len(calls)
	for _, by := range []op.Cond{op.CondSrcPort, op.CondDstPort} {
		most = min(most, mostAt(calls, by, rangesOf, cmp.Compare[uint32]))
	}
	for _, by := range []op.Cond{op.CondSrcIn, op.CondDstIn} {
		most = min(most, mostAt(calls, by, networksOf, netip.Addr.Compare))
	}
	return most
}

func rangesOf(t rule.Test) (all [][2]uint32) {
	for _, r := range t.Ranges {
		all = append(all, [2]uint32{r.Lo, r.Hi})
	}
	return all
}

func networksOf(t rule.Test) (all [][2]netip.Addr) {
	for _, p := range t.Prefixes {
		p = p.Masked()
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < len(last)*8; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		hi, _ := netip.AddrFromSlice(last)
		all = append(all, [2]netip.Addr{p.Addr(), hi})
	}
	return all
}

// mostAt returns how many rules at most are about one value of what a condition tests. A rule
// without that condition is about each.
func mostAt[T any](rules []*rule.Rule, by op.Cond, of func(rule.Test) [][2]T,
	compare func(a, b T) int) int {
	type edge struct {
		at   T
		more int
	}
	var edges []edge
	most, always := 0, 0
	for _, r := range rules {
		i := slices.IndexFunc(r.Clauses(), func(c rule.Clause) bool {
			return len(c) == 1 && c[0].Op == by && !c[0].Not
		})
		if i < 0 {
			always++
			continue
		}
		for _, x := range of(r.Clauses()[i][0]) {
			edges = append(edges, edge{x[0], 1}, edge{x[1], -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := compare(a.at, b.at); c != 0 {
			return c
		}
		return b.more - a.more // the last value of a range belongs to it
	})
	now := 0
	for _, e := range edges {
		now += e.more
		most = max(most, now)
	}
	return always + most
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
