package rule

import (
	"net/netip"
	"strconv"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// String returns the range as it is written in lists.
func (r Range) String() string {
	if r.Lo == r.Hi {
		return strconv.FormatUint(uint64(r.Lo), 10)
	}
	return strconv.FormatUint(uint64(r.Lo), 10) + "-" + strconv.FormatUint(uint64(r.Hi), 10)
}

// String returns the rule in canonical form, without "add": parsing it gives an equal rule (but for
// Pos). Synonyms are printed as one word, addresses as prefixes, services as numbers, and PROTO
// from SRC to DST is always there.
func (r *Rule) String() string {
	return string(r.AppendText(make([]byte, 0, 128)))
}

// AppendText appends what String returns.
func (r *Rule) AppendText(b []byte) []byte {
	if r.Number != 0 {
		b = append(appendNumber(b, uint32(r.Number)), ' ')
	}
	if r.Set != 0 {
		b = append(appendNumber(append(b, "set "...), uint32(r.Set)), ' ')
	}
	b = r.append(b, Style{})
	if r.Comment != "" {
		b = append(append(b, " // "...), r.Comment...)
	}
	return b
}

// Text returns the canonical form without number and set, as a listing shows it behind the
// counters.
func (r *Rule) Text() string {
	text := r.core()
	if r.Comment != "" {
		text += " // " + r.Comment
	}
	return text
}

// core returns what the rule does: its text without number, set and comment.
func (r *Rule) core() string { return r.print(Style{}) }

// Style is how a listing shows a rule; the zero Style is the canonical form.
type Style struct {
	Flows   bool // name the flow "default" too
	Compact bool // leave "ip from any to any" out where options stand behind it or nothing
	Brief   bool // only what the rule does, and its comment
}

// Listing returns the rule as a listing shows it behind the counters, without number and set. What
// a Brief listing leaves out of a rule without comment stands there as " // ...", as in ipfw.
func (r *Rule) Listing(s Style) string {
	text := r.print(s)
	switch {
	case r.Comment != "":
		text += " // " + r.Comment
	case s.Brief:
		text += " // ..."
	}
	return text
}

func (r *Rule) print(s Style) string {
	return string(r.append(make([]byte, 0, 128), s))
}

func (r *Rule) append(b []byte, s Style) []byte {
	if r.Prob != 0 {
		b = append(b, "prob "...)
		b = strconv.AppendFloat(b, r.Prob, 'g', -1, 64)
		b = append(b, ' ')
	}
	b = r.appendAction(b, s)
	if r.Action.Op == op.ActionCheckState {
		return b
	}
	if r.Log {
		b = append(b, " log"...)
	}
	if r.Log && r.LogMax != 0 {
		b = appendNumber(append(b, " logamount "...), r.LogMax)
	}
	if r.Tag != 0 {
		b = appendNumber(append(b, " tag "...), uint32(r.Tag))
	}
	if s.Brief {
		return b
	}
	if !s.Compact || len(r.Proto)+len(r.Src)+len(r.SrcPort)+len(r.Dst)+len(r.DstPort) > 0 {
		b = r.appendHeader(b)
	}
	for _, c := range r.Options {
		if len(c) > 0 {
			b = appendClause(append(b, ' '), c, "", appendOption)
		}
	}
	b = r.appendRate(b)
	b = r.appendState(b, s)
	if r.Defer {
		b = append(b, " defer-action"...)
	}
	if r.Liberal {
		b = append(b, " liberal"...)
	}
	return b
}

// appendHeader prints PROTO from SRC to DST.
func (r *Rule) appendHeader(b []byte) []byte {
	b = appendClause(append(b, ' '), r.Proto, "ip", appendProtocol)
	b = appendClause(append(b, " from "...), r.Src, "any", appendAddress)
	if len(r.SrcPort) > 0 {
		b = appendClause(append(b, ' '), r.SrcPort, "", appendPorts)
	}
	b = appendClause(append(b, " to "...), r.Dst, "any", appendAddress)
	if len(r.DstPort) > 0 {
		b = appendClause(append(b, ' '), r.DstPort, "", appendPorts)
	}
	return b
}

func (r *Rule) appendAction(b []byte, s Style) []byte {
	b = append(b, r.Action.Op.String()...)
	switch r.Action.Op {
	case op.ActionSkipTo, op.ActionCall, op.ActionPipe, op.ActionNAT:
		b = appendNumber(append(b, ' '), r.Action.Arg)
	case op.ActionFwd:
		b = appendHop(append(b, ' '), r.Action.NextHop)
	case op.ActionUnreach:
		b = appendCode(append(b, ' '), r.Action.Arg, codes4)
	case op.ActionUnreach6:
		b = appendCode(append(b, ' '), r.Action.Arg, codes6)
	case op.ActionCheckState:
		b = appendFlow(b, r.State.Flow, s)
	}
	return b
}

func (r *Rule) appendState(b []byte, s Style) []byte {
	if r.State.Op == op.StateNone || r.State.Op == op.StateCheck {
		return b
	}
	b = append(append(b, ' '), r.State.Op.Word()...)
	if r.State.Op == op.StateLimit || r.State.Op == op.StateSetLimit {
		b = appendParts(b, r.State.Mask)
		b = appendNumber(append(b, ' '), r.State.Limit)
	}
	return appendFlow(b, r.State.Flow, s)
}

func appendFlow(b []byte, flow string, s Style) []byte {
	if flow == "" && s.Flows {
		flow = "default"
	}
	if flow == "" {
		return b
	}
	return append(append(b, " :"...), flow...)
}

func appendCode(b []byte, n uint32, codes []code) []byte {
	for _, c := range codes {
		if c.code == n {
			return append(b, c.name...)
		}
	}
	return appendNumber(b, n)
}

func appendNumber(b []byte, n uint32) []byte { return strconv.AppendUint(b, uint64(n), 10) }

// appendClause prints a clause, an or-block if it has several tests; always is for the empty
// clause.
func appendClause(b []byte, c Clause, always string, test func([]byte, *Test) []byte) []byte {
	if len(c) == 0 {
		return append(b, always...)
	}
	if len(c) > 1 {
		b = append(b, "{ "...)
	}
	for i := range c {
		if i > 0 {
			b = append(b, " or "...)
		}
		if c[i].Not {
			b = append(b, "not "...)
		}
		b = test(b, &c[i])
	}
	if len(c) > 1 {
		b = append(b, " }"...)
	}
	return b
}

func appendProtocol(b []byte, t *Test) []byte {
	switch t.Op {
	case op.CondTrue:
		return append(b, "ip"...)
	case op.CondVersion:
		return appendNumber(append(b, "ip"...), t.A)
	}
	return append(b, packet.Proto(t.A).String()...)
}

func appendAddress(b []byte, t *Test) []byte {
	switch t.Op {
	case op.CondTrue:
		return append(b, "any"...)
	case op.CondSrcMe, op.CondDstMe:
		if t.A == 6 {
			return append(b, "me6"...)
		}
		return append(b, "me"...)
	case op.CondSrcTable, op.CondDstTable:
		b = append(append(b, "table("...), t.Name...)
		if t.HasValue {
			b = appendNumber(append(b, ','), t.Value)
		}
		return append(b, ')')
	}
	for i, p := range t.Prefixes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPrefix(b, p)
	}
	return b
}

func appendPrefix(b []byte, p netip.Prefix) []byte {
	if p.IsSingleIP() {
		return p.Addr().AppendTo(b)
	}
	return p.AppendTo(b)
}

func appendPorts(b []byte, t *Test) []byte {
	if t.Op == op.CondTrue {
		return append(b, "any"...)
	}
	return appendRanges(b, t.Ranges)
}

func appendRanges(b []byte, ranges []Range) []byte {
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNumber(b, r.Lo)
		if r.Hi != r.Lo {
			b = appendNumber(append(b, '-'), r.Hi)
		}
	}
	return b
}
