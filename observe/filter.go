package observe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// Filter picks events. The zero Filter picks all. It is not changed after it was made.
type Filter struct {
	kinds   uint8 // bit per firewall.EventKind; 0: all
	reasons []firewall.Reason
	rules   []rule.Range
	clauses []rule.Clause
	text    string
}

// what are the words that say what happened. deny also picks refused states: for whom it meets both
// are the same.
var what = map[string]uint8{
	"start": 1 << firewall.EventStart, "allow": 1 << firewall.EventStart,
	"pass":   1 << firewall.EventStart,
	"accept": 1 << firewall.EventStart, "permit": 1 << firewall.EventStart,
	"end":    1 << firewall.EventEnd,
	"drop":   1<<firewall.EventDrop | 1<<firewall.EventRefuse,
	"deny":   1<<firewall.EventDrop | 1<<firewall.EventRefuse,
	"refuse": 1 << firewall.EventRefuse, "log": 1 << firewall.EventLog,
}

// ParseFilter reads a filter: any of the words start (or allow), end, drop (or deny), refuse and
// log; "reason WORD" and "rule N" or "rule N-M", each of which may come several times; then the
// condition of a rule, of which PROTO, "from" and "to" may be missing. Errors in the condition are
// of type *rule.Error.
func ParseFilter(text string, names *rule.Names) (*Filter, error) {
	f := &Filter{text: strings.Join(strings.Fields(text), " ")}
	words := strings.Fields(text)
	for len(words) > 0 {
		n, err := f.word(words)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		words = words[n:]
	}
	if len(words) == 0 {
		return f, nil
	}
	r, err := condition(words, names)
	if err != nil {
		return nil, err
	}
	f.clauses = r.Clauses()
	return f, f.check(r)
}

// String returns the filter as it was given.
func (f *Filter) String() string { return f.text }

// word reads one thing that is no condition and returns how many words it took, 0 if there is none.
func (f *Filter) word(words []string) (int, error) {
	if bits, ok := what[words[0]]; ok {
		f.kinds |= bits
		return 1, nil
	}
	if words[0] != "reason" && words[0] != "rule" {
		return 0, nil
	}
	if len(words) == 1 {
		return 0, fmt.Errorf("filter: %s of what?", words[0])
	}
	if words[0] == "reason" {
		r, ok := reasonOf(words[1])
		if !ok {
			return 0, fmt.Errorf("filter: unknown reason %q", words[1])
		}
		f.reasons = append(f.reasons, r)
		return 2, nil
	}
	from, to, isRange := strings.Cut(words[1], "-")
	if !isRange {
		to = from
	}
	lo, err1 := strconv.ParseUint(from, 10, 16)
	hi, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || lo > hi {
		return 0, fmt.Errorf("filter: %q is no rule number, nor a range like 100-200", words[1])
	}
	f.rules = append(f.rules, rule.Range{Lo: uint32(lo), Hi: uint32(hi)})
	return 2, nil
}

// condition parses the condition of a rule of which ends may be missing: "tcp", "tcp from X", "udp
// to any 53", "from X", each followed by options. There is one way to complete such words, so the
// first that parses is the one; when none does, the error is that of the words as they are.
func condition(words []string, names *rule.Names) (*rule.Rule, error) {
	first, err := rule.ParseRule("count "+strings.Join(words, " "), names)
	if err == nil {
		return first, nil
	}
	from, to := indexOf(words, "from"), indexOf(words, "to")
	var tries [][]string
	if from == 0 || to == 0 {
		words = append([]string{"ip"}, words...)
		from, to = indexOf(words, "from"), indexOf(words, "to")
	}
	switch {
	case from < 0 && to < 0:
		for i := 1; i <= len(words); i++ {
			tries = append(tries, insert(words, i, "from", "any", "to", "any"))
		}
	case from < 0:
		tries = append(tries, insert(words, to, "from", "any"))
	case to < 0:
		for i := len(words); i > from+1; i-- {
			tries = append(tries, insert(words, i, "to", "any"))
		}
	default:
		tries = append(tries, words)
	}
	for _, t := range tries {
		if r, err := rule.ParseRule("count "+strings.Join(t, " "), names); err == nil {
			return r, nil
		}
	}
	return nil, err
}

func indexOf(words []string, w string) int {
	for i := range words {
		if words[i] == w {
			return i
		}
	}
	return -1
}

func insert(words []string, at int, more ...string) []string {
	all := append([]string{}, words[:at]...)
	return append(append(all, more...), words[at:]...)
}

// check refuses what events do not tell.
func (f *Filter) check(r *rule.Rule) error {
	if r.State.Op != rule.StateNone || r.Prob != 0 || r.Log || r.Tag != 0 {
		return errors.New("filter: a filter picks events: it makes no state, tag or log")
	}
	for _, c := range f.clauses {
		for i := range c {
			if !told(c[i].Op) {
				return fmt.Errorf("filter: events do not tell %q", c[i].Op.Word())
			}
		}
	}
	return nil
}

// Tables returns the names of the tables that the filter asks for.
func (f *Filter) Tables() []string {
	var names []string
	for _, c := range f.clauses {
		for i := range c {
			if c[i].Op == rule.OpSrcTable || c[i].Op == rule.OpDstTable {
				names = append(names, c[i].Name)
			}
		}
	}
	return names
}
