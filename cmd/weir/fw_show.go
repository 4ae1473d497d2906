package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirnet/weir/agent/api"
)

// listFlags are ipfw's flags of show and list.
type listFlags struct {
	json, counters, set, times, unix, body, dynamic *bool
}

func runFwShow(c *call) error { return c.listRules(true) }

func runFwList(c *call) error { return c.listRules(false) }

func (c *call) listRules(counters bool) error {
	f := listFlags{
		json:     c.Bool("j", false, "print JSON"),
		counters: c.Bool("a", counters, "show packets and bytes"),
		set:      c.Bool("S", false, "show the set of each rule, and disabled rules"),
		times:    c.Bool("t", false, "show when each rule matched last"),
		unix:     c.Bool("T", false, "the same in seconds since 1970"),
		body:     c.Bool("c", false, "compact: only what the rules do, without numbers and counters"),
		dynamic:  c.Bool("d", false, "list the live states, too"),
	}
	if err := c.onNode(0, -1); err != nil {
		return err
	}
	ranges, err := c.ruleNumbers()
	if err != nil {
		return err
	}
	var all api.Rules
	if err := c.get("/v1/rules", &all); err != nil {
		return err
	}
	var some []api.Rule
	for _, r := range all.Rules {
		if ranges.has(r.Number) && (!r.Disabled || *f.set || *f.json) {
			some = append(some, r)
		}
	}
	if len(ranges) > 0 && len(some) == 0 {
		return c.failed(fmt.Errorf("no such rule: %s", strings.Join(c.Args(), " ")))
	}
	if *f.json {
		all.Rules = some
		return printJSON(c.out, all)
	}
	writeRules(c.out, some, f)
	if *f.dynamic {
		fmt.Fprintln(c.out)
		return c.listStates()
	}
	return nil
}

func writeRules(w io.Writer, rules []api.Rule, f listFlags) {
	t := tabwriter.NewWriter(w, 0, 8, 1, ' ', tabwriter.AlignRight)
	for _, r := range rules {
		fmt.Fprintln(t, ruleLine(r, f))
	}
	t.Flush()
}

// ruleLine is one rule as ipfw lists it; columns that line up end in tabs.
func ruleLine(r api.Rule, f listFlags) string {
	if *f.body {
		return r.Text
	}
	line := fmt.Sprintf("%05d ", r.Number)
	if *f.counters {
		line += fmt.Sprintf("\t%d\t%d\t ", r.Packets, r.Bytes)
	}
	switch {
	case *f.unix && r.Last != nil:
		line += fmt.Sprintf("%d ", r.Last.Unix())
	case *f.unix:
		line += "0 "
	case *f.times && r.Last != nil:
		line += r.Last.Local().Format("Mon Jan _2 15:04:05 2006") + " "
	case *f.times:
		line += strings.Repeat(" ", 25)
	}
	if r.Disabled {
		line += "# DISABLED "
	}
	if *f.set {
		line += fmt.Sprintf("set %d ", r.Set)
	}
	return line + r.Text
}

// numbers are ranges of rule numbers; none means all.
type numbers [][2]uint16

func (n numbers) has(number uint16) bool {
	for _, r := range n {
		if r[0] <= number && number <= r[1] {
			return true
		}
	}
	return len(n) == 0
}

// ruleNumbers reads the words of the call as rule numbers and ranges of them.
func (c *call) ruleNumbers() (numbers, error) {
	var all numbers
	for _, w := range c.Args() {
		from, to, isRange := strings.Cut(w, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.ParseUint(from, 10, 16)
		hi, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || lo > hi {
			return nil, c.wrong("%q is no rule number, nor a range like 100-200", w)
		}
		all = append(all, [2]uint16{uint16(lo), uint16(hi)})
	}
	return all, nil
}
