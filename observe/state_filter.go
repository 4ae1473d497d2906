package observe

import (
	"fmt"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// ParseStateFilter reads a filter of states: "rule N" and the condition of a rule, as ParseFilter
// does, but for what is said of packets alone.
func ParseStateFilter(text string, names *rule.Names) (*Filter, error) {
	f, err := ParseFilter(text, names)
	if err != nil {
		return nil, err
	}
	if f.kinds != 0 || f.reasons != nil {
		return nil, fmt.Errorf("filter: start, drop and reason select events, not states")
	}
	for _, c := range f.clauses {
		for i := range c {
			if !heldByStates(c[i].Op) {
				return nil, fmt.Errorf("filter: states have no %q", c[i].Op.Word())
			}
		}
	}
	return f, nil
}

// heldByStates reports whether states have the fields that a condition needs.
func heldByStates(cond op.Cond) bool {
	switch cond {
	case op.CondFalse, op.CondTrue, op.CondVersion, op.CondProto, op.CondSrcIn, op.CondDstIn,
		op.CondSrcMe, op.CondDstMe, op.CondSrcTable, op.CondDstTable, op.CondSrcPort,
		op.CondDstPort:
		return true
	}
	return false
}

// MatchState reports whether the filter picks a state. Its source is the side that began.
func (f *Filter) MatchState(s *firewall.State, n *Names) bool {
	var e Event
	e.Kind, e.Proto, e.Src, e.Dst = firewall.EventStart, s.Proto, s.From, s.To
	e.Verdict.Rule = s.Rule
	return f.Match(&e, n)
}
