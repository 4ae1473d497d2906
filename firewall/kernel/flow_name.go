package kernel

import (
	"fmt"

	"github.com/weirnet/weir/internal/program"
)

// errManyFlows refuses a Program: while it replaces the one in force, states of both have their
// flow names.
type errManyFlows struct{ own, others int }

func (e errManyFlows) Error() string {
	return fmt.Sprintf("these rules have %d flow names, and those in force %d others: while the "+
		"former replace the latter, together at most %d are possible beside the default", e.own,
		e.others, program.MaxFlows)
}

// Hint returns what to do about it.
func (errManyFlows) Hint() string {
	return "use flow names that are in force (weir fw list shows them), or load rules with fewer " +
		"in between"
}

// haveFlowNamesLocked makes sure that there are ids for the flow names of a Program. Names of one
// that was not put in force after all have none any more.
func (e *Engine) haveFlowNamesLocked(p *program.Program) error {
	if e.prog != nil && !e.unpurged {
		if err := e.forgetNamesLocked(e.prog); err != nil {
			return err
		}
	}
	own, others := 0, 0 // without the default
	wanted := map[string]bool{"default": true}
	for _, name := range p.Flows {
		if !wanted[name] {
			own++
		}
		wanted[name] = true
	}
	for name := range e.nameIDs.ids[nameFlow] {
		if !wanted[name] {
			others++
		}
	}
	if own+others > program.MaxFlows {
		return errManyFlows{own, others}
	}
	return nil
}

// forgetNamesLocked frees the flow names that no rule of p uses; their states were removed.
func (e *Engine) forgetNamesLocked(p *program.Program) error {
	used := map[string]bool{"default": true}
	for _, name := range p.Flows {
		used[name] = true
	}
	return e.nameIDs.drop(nameFlow, func(name string) bool { return used[name] })
}
