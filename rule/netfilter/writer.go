package netfilter

import (
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// label is a place in the rule file that rules jump to; 0 is none.
type label int

// line is a line of the rule file in the making: a comment or a rule.
type line struct {
	comment string
	rule    *rule.Rule
	to      label   // what the rule jumps to
	at      []label // the labels of this place
	block   bool    // the rule begins a block of numbers
}

// writer writes the rules.
type writer struct {
	set      *ruleset
	lines    []line
	labels   label
	here     []label             // labels of the next rule
	block    bool                // the next rule begins a block
	states   bool                // some rule asks for the kind of a packet
	first    bool                // a check-state stands first
	uses     map[string]int      // jumps to a chain, by its key
	effects  map[followed]effect // what is known of chains
	rates    map[*entry]int      // how many rules have the rate of an entry
	checked  map[check]label     // check-states at the end
	asked    []check             // these in order
	families int                 // of the packets that come to the next rule
}

func newWriter(s *ruleset) *writer {
	w := &writer{set: s, uses: map[string]int{}, effects: map[followed]effect{},
		rates: map[*entry]int{}, checked: map[check]label{}, families: bothFamilies}
	for _, c := range s.chains {
		for _, e := range c.rules {
			if e.problem != "" {
				continue
			}
			w.states = w.states || e.kinds != anyKind
			if e.verdict == jump || e.verdict == goTo {
				w.uses[e.target]++
			}
		}
	}
	return w
}

func (w *writer) label() label {
	w.labels++
	return w.labels
}

// place puts a label before the next rule.
func (w *writer) place(l label) {
	if l != 0 {
		w.here = append(w.here, l)
	}
}

func (w *writer) comment(text string) { w.lines = append(w.lines, line{comment: text}) }

// add writes a rule with the clauses.
func (w *writer) add(r rule.Rule, clauses ...[]rule.Clause) *line {
	for _, list := range clauses {
		for _, c := range list {
			put(&r, c)
		}
	}
	w.lines = append(w.lines, line{rule: &r, at: w.here, block: w.block})
	w.here, w.block = nil, false
	return &w.lines[len(w.lines)-1]
}

// do writes a rule with a plain action.
func (w *writer) do(a op.Action, clauses ...[]rule.Clause) {
	w.add(rule.Rule{Action: rule.Action{Op: a}}, clauses...)
}

// skip writes a rule that jumps to a label.
func (w *writer) skip(to label, clauses ...[]rule.Clause) {
	w.add(rule.Rule{Action: rule.Action{Op: op.ActionSkipTo}}, clauses...).to = to
}

func (w *writer) checkState() {
	w.add(rule.Rule{Action: rule.Action{Op: op.ActionCheckState},
		State: rule.State{Op: op.StateCheck}})
}

// keep is how rules make states. Behind a check-state that every packet meets, keep-state looks
// nothing up, as record-state never does.
func (w *writer) keep() rule.State {
	if w.first {
		return rule.State{Op: op.StateKeep}
	}
	return rule.State{Op: op.StateRecord}
}

// put adds a clause where it is printed best.
func put(r *rule.Rule, c rule.Clause) {
	if len(c) == 0 {
		return
	}
	plain := len(c) == 1 && !c[0].Not
	same := true
	for _, t := range c {
		same = same && t.Op == c[0].Op && !t.Not
	}
	switch {
	case r.Proto == nil && same && (c[0].Op == op.CondProto || c[0].Op == op.CondVersion):
		r.Proto = c
	case r.Src == nil && addresses(c, op.CondSrcIn, op.CondSrcMe, op.CondSrcTable):
		r.Src = c
	case r.Dst == nil && addresses(c, op.CondDstIn, op.CondDstMe, op.CondDstTable):
		r.Dst = c
	case r.SrcPort == nil && plain && c[0].Op == op.CondSrcPort:
		r.SrcPort = c
	case r.DstPort == nil && plain && c[0].Op == op.CondDstPort:
		r.DstPort = c
	default:
		r.Options = append(r.Options, c)
	}
}

func addresses(c rule.Clause, ops ...op.Cond) bool {
	for _, t := range c {
		one := false
		for _, o := range ops {
			one = one || t.Op == o
		}
		if !one {
			return false
		}
	}
	return true
}
