package rules

import (
	"errors"
	"sync/atomic"

	"github.com/weirnet/weir/agent/adopt"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Adoption makes states of connections that are open when rules begin to deny by default: they
// would be cut off.
type Adoption struct {
	Explainer *Explainer
	// Adopt gives the kernel engine states.
	Adopt func([]firewall.State) (int, error)
	// Tunnel makes the states of the tunnel's engine, if there is one.
	Tunnel   func(*program.Program) error
	Problems *problem.List

	denied bool // rules that deny by default were in force when this agent took over
	count  atomic.Int64
}

// Begin is called before the first rules are put in force. takenOver: an earlier agent left the
// engine with rules in force.
func (a *Adoption) Begin(first Initial, takenOver bool) { a.denied = takenOver && first.Denied }

// Loaded is called after each change of the rules in force; old is nil at first.
func (a *Adoption) Loaded(old, new *program.Program, set *rule.Ruleset) {
	if !new.Strict || old != nil && old.Strict {
		return
	}
	if old == nil && a.denied { // what is open and has no state was refused
		return
	}
	count, err := adopt.Connections(new, func() (*soft.Engine, error) {
		return a.Explainer.Engine(new, set)
	}, a.Adopt)
	if err = errors.Join(err, a.Tunnel(new)); err != nil {
		a.Problems.Add("connections that were open before may be cut off: "+err.Error(),
			"weir doctor")
	}
	a.count.Add(int64(count))
}

// Count returns how many connections became states of the kernel engine.
func (a *Adoption) Count() int { return int(a.count.Load()) }
