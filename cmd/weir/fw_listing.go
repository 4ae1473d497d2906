package main

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/rule"
)

// timeColumn is the form of ctime(3), in which ipfw shows times.
const timeColumn = "Mon Jan _2 15:04:05 2006"

// listing prints rules and states in the columns of ipfw. Scripts cut them.
type listing struct {
	listFlags
	packets, bytes int             // widths of the counters, 0 for none
	limits         map[uint16]bool // numbers of the rules whose states count towards a limit
}

// newListing measures the columns: those of the counters are as wide as the longest one among all
// the rules and states of the answer.
func newListing(f listFlags, rules []api.Rule, states []api.State) *listing {
	l := &listing{listFlags: f, limits: map[uint16]bool{}}
	for _, r := range rules {
		if parsed, err := rule.ParseRule(r.Text, nil); err == nil && parsed.State.Limit > 0 {
			l.limits[r.Number] = true
		}
		l.measure(r.Packets, r.Bytes)
	}
	for _, s := range states {
		l.measure(s.Packets[0]+s.Packets[1], s.Bytes[0]+s.Bytes[1])
	}
	return l
}

func (l *listing) measure(packets, bytes uint64) {
	if l.counters {
		l.packets = max(l.packets, len(fmt.Sprint(packets)))
		l.bytes = max(l.bytes, len(fmt.Sprint(bytes)))
	}
}

// writeRules lists rules with their counters.
func writeRules(w io.Writer, rules []api.Rule) {
	newListing(listFlags{counters: true}, rules, nil).rules(w, nil, rules)
}

// rules lists those of the rules that are in the ranges, or all, and returns how many.
func (l *listing) rules(w io.Writer, ranges numbers, rules []api.Rule) (n int) {
	if l.dynamicOnly {
		return 0
	}
	rate := 0
	for _, r := range rules {
		rate = max(rate, len(rateColumn(r)))
	}
	for _, r := range rules {
		if ranges.has(r.Number) && (!r.Disabled || l.set) {
			fmt.Fprintln(w, l.rule(r, rate))
			n++
		}
	}
	return n
}

// rule is one line of a listing.
func (l *listing) rule(r api.Rule, rate int) string {
	line := fmt.Sprintf("%05d ", r.Number)
	if r.Disabled {
		line = "# DISABLED " + line
	}
	if l.counters {
		line += fmt.Sprintf("%*d %*d ", l.packets, r.Packets, l.bytes, r.Bytes)
	}
	if l.rates {
		line += fmt.Sprintf("%*s ", rate, rateColumn(r))
	}
	switch {
	case l.unix && r.Last != nil:
		line += fmt.Sprintf("%10d ", r.Last.Unix())
	case l.unix:
		line += fmt.Sprintf("%10d ", 0)
	case l.times && r.Last != nil:
		line += r.Last.Local().Format(timeColumn) + " "
	case l.times:
		line += strings.Repeat(" ", len(timeColumn)) // ipfw's column, without a space behind it
	}
	if l.set {
		line += fmt.Sprintf("set %d ", r.Set)
	}
	return line + l.text(r)
}

// text is the rule as ipfw lists it: states have the name of their flow, also the usual one.
func (l *listing) text(r api.Rule) string {
	parsed, err := rule.ParseRule(r.Text, nil)
	if err != nil { // of a newer node
		return tty.Escape(r.Text)
	}
	return parsed.Listing(rule.Style{Flows: true, Compact: l.compact, Brief: l.brief})
}

func rateColumn(r api.Rule) string {
	if r.Packets > 0 && r.Rate != nil {
		return fmt.Sprintf("%.1f/s", *r.Rate)
	}
	return "never"
}

// The bytes of ipfw's answer: a header and each state. They stand in the heading of the states.
const (
	dynamicHeader = 16
	dynamicEntry  = 140
)

// heading begins the list of states, of all rules or of some.
func (l *listing) heading(w io.Writer, states []api.State, some bool) {
	switch {
	case len(states) == 0:
	case some:
		fmt.Fprintln(w, "## Dynamic rules:")
	default:
		fmt.Fprintf(w, "## Dynamic rules (%d %d):\n", len(states),
			dynamicHeader+dynamicEntry*len(states))
	}
}

// states lists those of the rules in the ranges, or all.
func (l *listing) states(w io.Writer, states []api.State, ranges numbers) {
	for _, s := range states {
		if ranges.has(s.Rule) {
			fmt.Fprintln(w, l.state(s))
		}
	}
}

// state is the line of a state: both directions count together.
func (l *listing) state(s api.State) string {
	line := fmt.Sprintf("%05d", s.Rule)
	if l.counters {
		line += fmt.Sprintf(" %*d %*d (%ds)", l.packets, s.Packets[0]+s.Packets[1], l.bytes,
			s.Bytes[0]+s.Bytes[1], int(s.LeftSeconds))
	}
	kind := "STATE"
	if l.limits[s.Rule] {
		kind = "LIMIT"
	}
	flow := s.Flow
	if flow == "" {
		flow = "default"
	}
	return fmt.Sprintf("%s %s %s %s <-> %s :%s", line, kind, s.Proto, endpoint(s.From),
		endpoint(s.To), tty.Escape(flow))
}

// endpoint is an address and its port, 0 for none.
func endpoint(text string) string {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Sprint(at.Addr(), " ", at.Port())
	}
	return text + " 0"
}
