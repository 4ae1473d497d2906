package enginetest

import (
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// deniesIn makes the rules keep states whose instance of nat has deny_in. Translation itself is no
// part of the model: see translate_routed.go.
func (t *Model) deniesIn(all map[uint16]*rule.NAT) {
	for i, r := range t.rules {
		x := all[uint16(r.Action.Arg)]
		if r.Action.Op != op.ActionNAT || x == nil || !x.DenyIn {
			continue
		}
		keeps := *r
		keeps.State = rule.State{Op: op.StateKeep, Flow: program.NATFlow}
		t.rules[i] = &keeps
	}
}
