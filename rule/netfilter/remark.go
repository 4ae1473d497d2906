package netfilter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/rule"
)

// Effect is what it changes that a rule was left out.
type Effect string

// The effects.
const (
	EffectNone    Effect = "none"    // no verdict: the rule is about something else, or a note
	EffectPasses  Effect = "passes"  // packets pass that the rule refused
	EffectRefuses Effect = "refuses" // packets are refused that the rule let pass
	EffectUnknown Effect = "unknown" // it depends on the rules behind
)

// Remark is what the reader of the rules has to know: a rule that was left out, or a note.
type Remark struct {
	Place  Place  `json:"place"`
	Text   string `json:"text,omitempty"` // the rule, as in its source
	Left   bool   `json:"left_out"`       // it was left out
	Effect Effect `json:"effect"`
	Why    string `json:"why"`
}

// Line returns the remark as one line, without the rule.
func (r Remark) Line() string {
	var b strings.Builder
	if r.Place.File != "" {
		fmt.Fprintf(&b, "%s: ", r.Place)
	}
	if r.Left {
		b.WriteString("left out: ")
	}
	b.WriteString(r.Why)
	switch r.Effect {
	case EffectPasses:
		b.WriteString(" (packets pass that it refused)")
	case EffectRefuses:
		b.WriteString(" (packets are refused that it let pass)")
	case EffectUnknown:
		b.WriteString(" (what that changes depends on the other rules)")
	}
	return b.String()
}

// Result is an imported rule set.
type Result struct {
	Form    string        // of the source: "iptables-save", "nft", "ufw"
	Text    string        // the rule file
	Rules   *rule.Ruleset // what the file says
	Remarks []Remark
	IPv4    bool // rules of the family were read
	IPv6    bool
}

// Complete reports whether nothing was left out.
func (r *Result) Complete() bool {
	return !slices.ContainsFunc(r.Remarks, func(m Remark) bool { return m.Left })
}

// effect is what leaving a rule out changes.
func (e *entry) effect() Effect {
	switch {
	case e.quiet:
		return EffectNone
	case e.other && e.verdict == proceed:
		return EffectUnknown
	case e.verdict == accept:
		return EffectRefuses
	case e.verdict == drop || e.verdict == reject:
		return EffectPasses
	case e.verdict == proceed:
		return EffectNone
	}
	return EffectUnknown
}

// leave records that a rule is left out.
func (s *ruleset) leave(e *entry) {
	s.leaveOnce(Remark{Place: e.place, Text: e.text, Left: !e.quiet, Effect: e.effect(),
		Why: e.problem})
}

// leaveOnce adds a remark: a chain may be written several times.
func (s *ruleset) leaveOnce(r Remark) {
	if !s.left[r] {
		s.left[r] = true
		s.remarks = append(s.remarks, r)
	}
}

// leavePart records that a rule is left out for packets of protocols whose ports rules do not know.
func (s *ruleset) leavePart(e *entry, text string) {
	s.leaveOnce(Remark{Place: e.place, Text: text, Left: true, Effect: e.effect(),
		Why: "for packets of other protocols than TCP, UDP, UDP-Lite and SCTP, such as DCCP: " +
			"rules know the ports of these alone"})
}

// unfilled records that a table does not have the members of its set: what rules that ask it do is
// not what they did.
func (s *ruleset) unfilled(at Place, format string, args ...any) {
	s.remarks = append(s.remarks, Remark{Place: at, Left: true, Effect: EffectUnknown,
		Why: fmt.Sprintf(format, args...)})
}

// note records what is not about a rule that was left out.
func (s *ruleset) note(at Place, format string, args ...any) {
	s.remarks = append(s.remarks, Remark{Place: at, Effect: EffectNone,
		Why: fmt.Sprintf(format, args...)})
}
