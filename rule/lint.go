package rule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// FindingKind is the kind of a finding.
type FindingKind uint8

// The kinds of findings. Each means that no packet is ever matched by the rule's conditions.
const (
	Never       FindingKind = iota + 1 // the conditions exclude each other
	Duplicate                          // By[0] says the same earlier
	Shadowed                           // By[0] takes every packet that would match
	Covered                            // the rules By together take them
	Unreachable                        // the skipto rules By lead all of them past the rule
)

// Finding is a rule without effect, and why.
type Finding struct {
	Kind     FindingKind
	Rule     *Rule
	By       []*Rule // the rules that take its packets, in order; none for Never
	Opposite bool    // one of By lets packets pass that Rule would drop, or the other way round
}

// String returns the finding as one sentence.
func (f Finding) String() string {
	var by []string
	for _, r := range f.By {
		by = append(by, fmt.Sprint(r.Number))
	}
	list := strings.Join(by, ", ")
	text := map[FindingKind]string{
		Never:     "never matches: its conditions exclude each other",
		Duplicate: "is never reached: it is a duplicate of rule " + list,
		Shadowed:  "is never reached: rule " + list + " takes every packet that it would match",
		Covered: "is never reached: the rules " + list +
			" together take every packet that it would match",
		Unreachable: "is never reached: skipto leads past it (" + list + ")",
	}[f.Kind]
	if f.Opposite {
		text += ", and does the opposite"
	}
	return fmt.Sprintf("rule %d %s", f.Rule.Number, text)
}

// Lint finds the enabled rules that no packet can match. It follows all packets that meet the
// conditions of a rule, as sets, through the rules before it: what it reports is proved. Conditions
// that depend on more than the packet (interfaces, me, tables, tags, routes) are taken as unknown,
// but the same everywhere. Rules with prob take nothing for sure, and a call may lead anywhere. A
// state may send a packet on behind a count or skipto rule that made it. undecided are the rules
// whose packets fell into too many sets to follow.
func Lint(s *Ruleset) (findings []Finding, undecided []*Rule, err error) {
	l, err := newLinter(s)
	if err != nil {
		return nil, nil, err
	}
	for slot, r := range l.rules {
		if r.Action.Op == op.ActionCheckState {
			continue
		}
		f, ok := l.examine(slot)
		switch {
		case !ok:
			undecided = append(undecided, r)
		case f != nil:
			findings = append(findings, *f)
		}
	}
	return findings, undecided, nil
}

// linter holds the rules in the form that Lint follows.
type linter struct {
	rules  []*Rule
	codes  []program.Rule
	boxes  []box
	opaque [][]Clause // conditions that no box expresses
	empty  []bool     // no packet at all
	kinds  []box
	tags   bool         // some rule sets a tag, so tagged is not the same everywhere
	behind map[int]bool // slots at which a state may send any packet on
	calls  []int
}

func newLinter(s *Ruleset) (*linter, error) {
	p, err := compileFull(s, CompileOptions{})
	if err != nil {
		return nil, err
	}
	rules := s.Active()
	l := &linter{
		rules: rules, codes: p.Rules, kinds: packetKinds(),
		boxes: make([]box, len(rules)), opaque: make([][]Clause, len(rules)),
		empty:  make([]bool, len(rules)),
		behind: make(map[int]bool),
	}
	for slot, r := range rules {
		l.tags = l.tags || r.Tag != 0
		l.prepare(slot, r)
		if r.Action.Op == op.ActionCall {
			l.calls = append(l.calls, slot)
		}
		if r.State.Op == op.StateNone || r.State.Op == op.StateCheck || l.final(slot) {
			continue
		}
		switch r.Action.Op {
		case op.ActionSkipTo:
			l.behind[int(p.Rules[slot].Arg)] = true
		case op.ActionCall, op.ActionReturn:
			for at := range rules {
				l.behind[at] = true
			}
		case op.ActionCount:
			l.behind[slot+1] = true
		}
	}
	return l, nil
}

// final reports whether the action of a rule ends the walk.
func (l *linter) final(slot int) bool {
	if l.rules[slot].Action.Op == op.ActionNAT && l.codes[slot].Arg&program.NATContinues != 0 {
		return false
	}
	return l.rules[slot].passes() || l.rules[slot].drops()
}

func (r *Rule) passes() bool {
	switch r.Action.Op {
	case op.ActionAllow, op.ActionPipe, op.ActionNAT, op.ActionFwd:
		return true
	}
	return false
}

func (r *Rule) drops() bool {
	switch r.Action.Op {
	case op.ActionDeny, op.ActionReject, op.ActionReset, op.ActionUnreach, op.ActionUnreach6:
		return true
	}
	return false
}

// prepare makes the box of a rule. Later fragments meet only rules with a frag condition.
func (l *linter) prepare(slot int, r *Rule) {
	b := &l.boxes[slot]
	limit := func(dim program.Dim, s spans) {
		if b[dim] != nil {
			s = intersect(b[dim], s)
		}
		b[dim] = s
		l.empty[slot] = l.empty[slot] || len(s) == 0
	}
	if !l.codes[slot].Frag {
		limit(program.DimHook, spans{indexSpan(0, 1)})
	}
	for _, c := range r.Clauses() {
		if c.always() {
			continue
		}
		if c.never() {
			l.empty[slot] = true
			continue
		}
		dim := c[0].lintDim()
		same := !slices.ContainsFunc(c, func(t Test) bool { return t.lintDim() != dim })
		if dim == lintDims || !same {
			l.opaque[slot] = append(l.opaque[slot], c)
			continue
		}
		var s spans
		for i := range c {
			s = append(s, c[i].lintSpans(dim)...)
		}
		limit(dim, union(s))
	}
	l.empty[slot] = l.empty[slot] || excludes(l.opaque[slot], l.opaque[slot])
}

// never reports whether the clause is false for every packet: "not any".
func (c Clause) never() bool {
	return !slices.ContainsFunc(c, func(t Test) bool { return t.Op != op.CondTrue || !t.Not })
}

// equal reports whether two tests are the same but for their negation.
func (t *Test) equal(o *Test) bool {
	return t.Op == o.Op && t.A == o.A && t.B == o.B && t.Name == o.Name &&
		t.HasValue == o.HasValue && t.Value == o.Value &&
		slices.Equal(t.Prefixes, o.Prefixes) && slices.Equal(t.Ranges, o.Ranges)
}

// excludes reports whether a clause of a is the negation of one of b.
func excludes(a, b []Clause) bool {
	for _, x := range a {
		for _, y := range b {
			if len(x) == 1 && len(y) == 1 && x[0].Not != y[0].Not && x[0].equal(&y[0]) {
				return true
			}
		}
	}
	return false
}

// lasting returns the clauses that a packet meets at every rule or at none. A tag may be set on the
// way, so that tagged and not tagged are both true of a packet.
func (l *linter) lasting(clauses []Clause) []Clause {
	if !l.tags {
		return clauses
	}
	return slices.DeleteFunc(slices.Clone(clauses), func(c Clause) bool {
		return len(c) == 1 && c[0].Op == op.CondTagged
	})
}

// implied reports whether all clauses of slot are true whenever those of for are: each has all
// tests of one of these.
func (l *linter) implied(slot, by int) bool {
	for _, want := range l.opaque[slot] {
		if !slices.ContainsFunc(l.opaque[by], func(have Clause) bool {
			return l.within(have, want)
		}) {
			return false
		}
	}
	return true
}

// within reports whether every test of a is one of b.
func (l *linter) within(a, b Clause) bool {
	for i := range a {
		if l.tags && a[i].Op == op.CondTagged {
			return false
		}
		if !slices.ContainsFunc(b, func(t Test) bool {
			return t.Not == a[i].Not && t.equal(&a[i])
		}) {
			return false
		}
	}
	return true
}

// examine follows the packets of a rule. It returns nil if some may reach the rule, and false if
// the packets fall into too many sets.
func (l *linter) examine(slot int) (*Finding, bool) {
	f := &Finding{Kind: Never, Rule: l.rules[slot]}
	if l.empty[slot] {
		return f, true
	}
	var all []box
	for i := range l.kinds {
		if b, ok := l.kinds[i].and(&l.boxes[slot]); ok {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		return f, true
	}
	w := l.walkTo(slot, all)
	reached, ok := w.run()
	if reached || !ok {
		return nil, ok
	}
	l.explain(f, w, all)
	return f, true
}

// explain returns the rules that took the packets: one alone if one is enough.
func (l *linter) explain(f *Finding, w *walk, all []box) {
	f.Kind = Unreachable
	by := slices.Sorted(maps.Keys(w.took))
	if slices.ContainsFunc(by, l.final) {
		f.Kind = Covered
	}
	alone := slices.IndexFunc(by, func(slot int) bool {
		return l.final(slot) && l.takes(slot, all)
	})
	if alone >= 0 && !w.jumped {
		by = by[alone : alone+1]
	}
	for _, slot := range by {
		r := l.rules[slot]
		f.By = append(f.By, r)
		f.Opposite = f.Opposite || r.passes() && f.Rule.drops() || r.drops() && f.Rule.passes()
	}
	if len(by) == 1 && f.Kind == Covered {
		f.Kind = Shadowed
		if f.By[0].core() == f.Rule.core() {
			f.Kind = Duplicate
		}
	}
}

// takes reports whether all packets of the boxes are in a rule's box.
func (l *linter) takes(slot int, all []box) bool {
	for i := range all {
		if len(all[i].minus(&l.boxes[slot], nil)) > 0 {
			return false
		}
	}
	return true
}
