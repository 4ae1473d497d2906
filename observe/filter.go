package observe

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Filter picks events. The zero Filter picks all. It is immutable.
type Filter struct {
	kinds   uint8 // bit per firewall.EventKind; 0: all
	reasons []firewall.Reason
	rules   []rule.Range
	clauses []rule.Clause
	text    string
}

// what are the words for what happened. deny also picks refused states: for the sender both are the
// same.
var what = map[string]uint8{
	"start": 1 << firewall.EventStart, "allow": 1 << firewall.EventStart,
	"pass":   1 << firewall.EventStart,
	"accept": 1 << firewall.EventStart, "permit": 1 << firewall.EventStart,
	"end":    1 << firewall.EventEnd,
	"drop":   1<<firewall.EventDrop | 1<<firewall.EventRefuse,
	"deny":   1<<firewall.EventDrop | 1<<firewall.EventRefuse,
	"refuse": 1 << firewall.EventRefuse, "log": 1 << firewall.EventLog,
}

// ParseFilter reads a filter. First come any of the words start (or allow), end, drop (or deny),
// refuse and log. "reason WORD" and "rule N" or "rule N-M" may each come several times. Then comes
// the condition of a rule, of which PROTO, "from" and "to" may be missing. Errors in the condition
// are of type *rule.Error.
func ParseFilter(text string, names *rule.Names) (*Filter, error) {
	f := &Filter{text: strings.Join(strings.Fields(text), " ")}
	tokens := strings.Fields(text)
	for len(tokens) > 0 {
		n, err := f.event(tokens)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		tokens = tokens[n:]
	}
	if len(tokens) == 0 {
		return f, nil
	}
	r, err := condition(tokens, names)
	if err != nil {
		return nil, f.locate(err, tokens)
	}
	f.clauses = r.Clauses()
	return f, f.check(r)
}

// String returns the filter as it was given.
func (f *Filter) String() string { return f.text }

// event reads one part in front of the condition and returns how many tokens it took, 0 if there is
// none.
func (f *Filter) event(tokens []string) (int, error) {
	if bits, ok := what[tokens[0]]; ok {
		f.kinds |= bits
		return 1, nil
	}
	if tokens[0] != "reason" && tokens[0] != "rule" {
		return 0, nil
	}
	if len(tokens) == 1 {
		return 0, fmt.Errorf("filter: %s without a value", tokens[0])
	}
	if tokens[0] == "reason" {
		r, ok := reasonOf(tokens[1])
		if !ok {
			return 0, fmt.Errorf("filter: unknown reason %q", tokens[1])
		}
		f.reasons = append(f.reasons, r)
		return 2, nil
	}
	from, to, isRange := strings.Cut(tokens[1], "-")
	if !isRange {
		to = from
	}
	lo, err1 := strconv.ParseUint(from, 10, 16)
	hi, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || lo > hi {
		return 0, fmt.Errorf("filter: %q is not a rule number or a range like 100-200", tokens[1])
	}
	f.rules = append(f.rules, rule.Range{Lo: uint32(lo), Hi: uint32(hi)})
	return 2, nil
}

// locate makes an error of condition one of the filter: with its text, and the place in it.
func (f *Filter) locate(err error, tokens []string) error {
	var e *rule.Error
	if !errors.As(err, &e) {
		return err
	}
	_, lead := complete(tokens)
	more := len(f.text) - len(strings.Join(tokens, " ")) - len(lead)
	place := *e
	if place.Hint == "" {
		place.Hint = "a filter is like: deny tcp from 192.0.2.7 to me 22"
	}
	place.Text = f.text
	place.Pos.Col = min(max(e.Pos.Col+more, 1), len(f.text)+1)
	place.Pos.End = min(max(e.Pos.End+more, place.Pos.Col), len(f.text)+1)
	return &place
}

// complete puts what a rule has before "from" in front of a condition that begins with "from" or
// "to". lead is the text before what was given, with the action that a rule needs.
func complete(tokens []string) (all []string, lead string) {
	var more []string
	switch {
	case tokens[0] == "to" && !slices.Contains(tokens, "from"):
		more = []string{"ip", "from", "any"}
	case tokens[0] == "to", tokens[0] == "from":
		more = []string{"ip"}
	}
	for _, word := range append([]string{action}, more...) {
		lead += word + " "
	}
	return insert(tokens, 0, more...), lead
}

// action makes a condition a rule, so that it can be parsed.
const action = "count"

// condition parses the condition of a rule of which ends may be missing: "tcp", "tcp from X", "udp
// to any 53", "from X", each followed by options. Such tokens can be completed in one way only, so
// the first completion that parses is right. When none does, the error is that of the tokens as
// they are.
func condition(tokens []string, names *rule.Names) (*rule.Rule, error) {
	tokens, _ = complete(tokens)
	parse := func(tokens []string) (*rule.Rule, error) {
		return rule.ParseRule(action+" "+strings.Join(tokens, " "), names)
	}
	first, err := parse(tokens)
	if err == nil {
		return first, nil
	}
	from, to := slices.Index(tokens, "from"), slices.Index(tokens, "to")
	var tries [][]string
	switch {
	case from < 0 && to < 0:
		for i := 1; i <= len(tokens); i++ {
			tries = append(tries, insert(tokens, i, "from", "any", "to", "any"))
		}
	case from < 0:
		tries = append(tries, insert(tokens, to, "from", "any"))
	case to < 0:
		for i := len(tokens); i > from+1; i-- {
			tries = append(tries, insert(tokens, i, "to", "any"))
		}
	}
	for _, t := range tries {
		if r, err := parse(t); err == nil {
			return r, nil
		}
	}
	return nil, err
}

func insert(tokens []string, at int, more ...string) []string {
	return slices.Insert(slices.Clone(tokens), at, more...)
}

// check refuses conditions that events cannot answer.
func (f *Filter) check(r *rule.Rule) error {
	if r.State.Op != op.StateNone || r.Rate.N != 0 || r.Prob != 0 || r.Log || r.Tag != 0 {
		return errors.New("filter: it selects events: leave states, limits, prob, log and tag out")
	}
	for _, c := range f.clauses {
		for i := range c {
			if !answerable(c[i].Op) {
				return fmt.Errorf("filter: events have no %q", c[i].Op.Word())
			}
		}
	}
	return nil
}

// Tables returns the names of the tables in the filter.
func (f *Filter) Tables() []string {
	var names []string
	for _, c := range f.clauses {
		for i := range c {
			if c[i].Op == op.CondSrcTable || c[i].Op == op.CondDstTable {
				names = append(names, c[i].Name)
			}
		}
	}
	return names
}
