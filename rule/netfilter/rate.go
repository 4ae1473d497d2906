package netfilter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/rule"
)

// rate is what a rule of the source says about packets in a time.
type rate struct {
	packets, burst uint64 // burst 0: none is said
	unit           string // "second", "hour", or a beginning of it
	bytes          bool   // it counts bytes instead
	over           bool   // the rule matches what is too much
	clauses        int    // of the rule, when the rate was read
	kinds          kinds  // of the rule, when the rate was read
	shared         bool   // it is not the last condition, or that of several rules
}

// fits reports whether the rule language has the rate. It is the last condition of a rule there.
func (e *entry) fits() bool {
	return e.rate.words() != "" && !e.rate.bytes && !e.rate.over && !e.rate.shared && e.prob == 0
}

// option is the rate as rules have it.
func (r *rate) option() rule.Rate {
	parsed, err := rule.ParseRule("count ip from any to any "+r.words()+" exceed next", nil)
	if err != nil {
		return rule.Rate{}
	}
	return parsed.Rate
}

// last notes that the rate is the last condition of a rule so far, and end that the rule is over.
func (r *rate) last(e *entry) { r.clauses, r.kinds = len(e.clauses), e.kinds }

func (r *rate) end(e *entry) {
	r.shared = r.shared || r.clauses != len(e.clauses) || r.kinds != e.kinds
}

// rated writes a rule with a rate, which is one of a single rule: see ruleset.write.
func (b *base) rated(e *entry, f *frame, now kinds, end label) {
	one, first := *e, len(b.lines)
	one.rate = nil
	b.rule(&one, now, end)
	for _, l := range b.lines[first:] {
		if l.rule != nil {
			l.rule.Rate = e.rate.option()
			b.rates[e]++
		}
	}
	if b.states && e.kinds&known != 0 && !f.knownGone() {
		b.rates[e] = several
	}
}

// several is more than one rule: no rate is that of the source.
const several = 1 << 16

// knownGone reports whether packets of known flows have been accepted in front of the frame's
// present rule. Else they take of its rate in netfilter, and here they pass by their state.
func (f *frame) knownGone() bool {
	rest := known
	for ; f != nil; f = f.up {
		for _, e := range f.rules[:f.at-1] {
			if e.problem == "" && e.verdict == accept && e.unconditional() {
				rest &^= e.kinds
			}
		}
		if f.up == nil && f.noKnown {
			return true
		}
	}
	return rest == 0
}

// write writes the rules. A rule with a rate that would become several rules is left out.
func (s *ruleset) write() *writer {
	for before := len(s.remarks); ; {
		w := newWriter(s)
		w.all()
		again := false
		for e, rules := range w.rates {
			if rules > 1 {
				e.problem, again = e.rate.problem(), true
			}
		}
		if !again {
			return w
		}
		for _, r := range s.remarks[before:] {
			delete(s.left, r)
		}
		s.remarks = s.remarks[:before]
	}
}

// problem is why a rule with the rate is left out, with what to write by hand.
func (r *rate) problem() string {
	words := r.words()
	switch {
	case r.bytes:
		return "a rate of bytes is a `pipe`, which is written by hand"
	case words == "":
		return "rules do not have this rate: write it by hand with `limit-rate N/s`, for as many " +
			"packets as you need"
	case r.over:
		return "it is about what is too much: write `" + words + "` by hand into the rule that " +
			"lets these packets pass, which drops what is more"
	}
	return "its rate counts all that comes to it, and here it would be several rules, or known " +
		"flows would pass before it: write it by hand with `" + words + " exceed next`"
}

// words is the option of rules that means the rate, "" if there is none.
func (r *rate) words() string {
	if r.unit == "" || !strings.Contains("smh", r.unit[:1]) || r.packets == 0 {
		return ""
	}
	words := fmt.Sprintf("limit-rate %d/%s", r.packets, r.unit[:1])
	if r.burst != 0 {
		words += fmt.Sprintf(" burst %d", r.burst)
	}
	if _, err := rule.ParseRule("allow ip from any to any "+words, nil); err != nil {
		return ""
	}
	return words
}

// limited notes -m limit, which is a rate also without an option.
func (p *ruleParser) limited() {
	if p.entry.rate == nil {
		// the values of xt_limit that iptables-save prints, and other programs leave out
		p.entry.rate = &rate{packets: 3, unit: "hour", burst: 5}
	}
	p.entry.rate.last(p.entry)
}

// limit reads a value of -m limit: "10/min", or a burst.
func (p *ruleParser) limit(option, value string) {
	p.limited()
	count, unit, _ := strings.Cut(value, "/")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil {
		p.fail("%s %s is not understood", option, value)
		return
	}
	if option == "--limit-burst" {
		p.entry.rate.burst = n
		return
	}
	p.entry.rate.packets, p.entry.rate.unit = n, unit
	if unit == "" {
		p.entry.rate.unit = "second"
	}
}

// nftRate reads a limit statement of nft. One that is named has no numbers here.
func nftRate(m map[string]any) *rate {
	number := func(key string) uint64 {
		f, _ := m[key].(float64)
		return uint64(max(f, 0))
	}
	r := &rate{packets: number("rate"), burst: number("burst")}
	if r.burst == 0 {
		r.burst = 5 // what nft has if nothing is said
	}
	r.unit, _ = m["per"].(string)
	r.over, _ = m["inv"].(bool)
	unit, _ := m["rate_unit"].(string)
	r.bytes = unit != "" && unit != "packets"
	return r
}
