package program

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/rule/op"
)

// Check returns an error if an engine could not run p. That is so if a bound is exceeded, an index
// points outside of its array, or the last rule does not end every walk. Compile makes only
// Programs that pass. Every engine calls it before it takes a Program, so that all of them refuse
// the same.
func (p *Program) Check() error {
	n := len(p.Rules)
	switch {
	case n == 0:
		return errors.New("program without a default rule")
	case n > MaxRules:
		return fmt.Errorf("program of %d rules: at most %d", n, MaxRules)
	case p.Classes.Words != (n+63)/64:
		return fmt.Errorf("program of %d rules with vectors of %d words", n, p.Classes.Words)
	case len(p.Flows) == 0:
		return errors.New("program without the flow name \"default\"")
	case len(p.Flows) > MaxFlows+1: // "default" comes on top
		return fmt.Errorf("program with %d flow names: at most %d", len(p.Flows)-1, MaxFlows)
	case len(p.Tables) > MaxTables:
		return fmt.Errorf("program with %d tables: at most %d", len(p.Tables), MaxTables)
	case len(p.Globs) > MaxGlobs:
		return fmt.Errorf("program with %d interface patterns: at most %d", len(p.Globs), MaxGlobs)
	}
	if n+len(p.Pipes) > MaxRules {
		return fmt.Errorf("program of %d rules and %d pipes: at most %d together", n, len(p.Pipes),
			MaxRules)
	}
	for i := range p.Pipes {
		if x := &p.Pipes[i]; x.PerByte == 0 || x.PerByte > MaxPerByte || x.Depth < 0 ||
			x.Src6 > 64 || x.Dst6 > 128 {
			return fmt.Errorf("program: pipe %d is out of range", x.Number)
		}
	}
	if err := p.checkNATs(); err != nil {
		return err
	}
	for _, h := range p.NextHops {
		if !ValidNextHop(h.Addr()) {
			return fmt.Errorf("program: %s cannot be a next hop", h)
		}
	}
	for i := range p.Rules {
		if !p.inside(i) {
			return fmt.Errorf("program: rule %d: index %d is out of range",
				p.Rules[i].Number, i)
		}
	}
	last := &p.Rules[n-1]
	if last.Action != op.ActionAllow && last.Action != op.ActionDeny || last.Cond != last.CondEnd ||
		last.State != op.StateNone || last.Prob != 0 || last.Every != 0 ||
		last.Pipe != 0 {
		return errors.New("program: the last rule must allow or deny everything")
	}
	return nil
}

// inside reports whether the indexes of rule i stay in their arrays, and a skipto jumps forward.
func (p *Program) inside(i int) bool {
	c := &p.Rules[i]
	switch {
	case c.Action == op.ActionSkipTo && (int(c.Arg) <= i || int(c.Arg) >= len(p.Rules)):
		return false
	case c.Action == op.ActionCall && int(c.Arg) >= len(p.Rules):
		return false
	case int(c.Pipe) > len(p.Pipes) || c.Pipe != 0 && c.Action != op.ActionAllow:
		return false
	case c.Action == op.ActionNAT && p.FindNAT(uint16(c.Arg)) == nil:
		return false
	case c.Action == op.ActionFwd && int(c.Arg) >= len(p.NextHops):
		return false
	case c.Flow != AnyFlow && int(c.Flow) >= len(p.Flows):
		return false
	}
	return c.Cond <= c.CondEnd && int(c.CondEnd) <= len(p.Conds)
}
