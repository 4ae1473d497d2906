package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// listFlags are ipfw's flags of show and list. The zero value lists the rules alone.
type listFlags struct {
	json, counters, rates, set, times, unix, body, dynamic bool
}

func fwShowVerb(c *call) action { return c.listRules(true) }

func fwListVerb(c *call) action { return c.listRules(false) }

func (c *call) listRules(counters bool) action {
	var f listFlags
	c.BoolVarP(&f.json, "json", "j", false, "print JSON")
	c.BoolVarP(&f.counters, "counters", "a", counters, "show packets and bytes")
	c.BoolVarP(&f.body, "compact", "c", false,
		"only what the rules do, without numbers and counters")
	c.BoolVarP(&f.rates, "rates", "r", false,
		"read the counters twice, a second apart, and show rates and rules that never matched")
	c.BoolVarP(&f.set, "sets", "S", false, "show the set of each rule, and disabled rules")
	c.BoolVarP(&f.times, "times", "t", false, "show when each rule matched last")
	c.BoolVarP(&f.unix, "timestamps", "T", false, "the same, in seconds since 1970")
	c.BoolVarP(&f.dynamic, "states", "d", false, "list the live states too")
	c.takes(0, -1)
	c.complete(c.liveRules)
	return func() error { return c.printRules(&f) }
}

// printRules lists the rules of the arguments, or all.
func (c *call) printRules(f *listFlags) error {
	ranges, err := c.ruleNumbers()
	if err != nil {
		return err
	}
	var all api.Rules
	if err := c.get("/v1/rules", &all); err != nil {
		return err
	}
	if f.rates {
		if err := c.rates(&all); err != nil {
			return err
		}
	}
	var some []api.Rule
	for _, r := range all.Rules {
		if ranges.has(r.Number) && (!r.Disabled || f.set || f.json) {
			some = append(some, r)
		}
	}
	if len(ranges) > 0 && len(some) == 0 {
		return c.failed(fmt.Errorf("no such rule: %s", strings.Join(c.Args(), " ")))
	}
	if f.json {
		all.Rules = some
		return printJSON(c.out, all)
	}
	if f.rates {
		fmt.Fprintf(c.out, "never: not since %s\n", all.Since.Local().Format(time.DateTime))
	}
	writeRules(c.out, some, *f)
	if c.Changed("counters") && f.counters {
		printTable(c, &all.Table, "# ")
	}
	if f.dynamic {
		fmt.Fprintln(c.out)
		return c.listStates()
	}
	return nil
}

// rates reads the rules again a second later and sets the rates of matched packets.
func (c *call) rates(all *api.Rules) error {
	before := map[string]uint64{}
	key := func(r *api.Rule) string { return fmt.Sprint(r.Number, r.Set, r.Text) }
	for i := range all.Rules {
		before[key(&all.Rules[i])] += all.Rules[i].Packets
	}
	began := time.Now()
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-time.After(time.Second):
	}
	if err := c.get("/v1/rules", all); err != nil {
		return err
	}
	passed := time.Since(began).Seconds()
	now := map[string]uint64{}
	for i := range all.Rules {
		now[key(&all.Rules[i])] += all.Rules[i].Packets
	}
	for i := range all.Rules {
		k := key(&all.Rules[i])
		rate := 0.0
		if old, ok := before[k]; ok && now[k] >= old {
			rate = float64(now[k]-old) / passed
		}
		all.Rules[i].Rate = &rate
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
	if f.body {
		return r.Text
	}
	line := fmt.Sprintf("%05d ", r.Number)
	if f.counters {
		line += fmt.Sprintf("\t%d\t%d\t ", r.Packets, r.Bytes)
	}
	if f.rates {
		rate := "never"
		if r.Packets > 0 && r.Rate != nil {
			rate = fmt.Sprintf("%.1f/s", *r.Rate)
		}
		line += fmt.Sprintf("\t%s\t ", rate)
	}
	switch {
	case f.unix && r.Last != nil:
		line += fmt.Sprintf("%d ", r.Last.Unix())
	case f.unix:
		line += "0 "
	case f.times && r.Last != nil:
		line += r.Last.Local().Format("Mon Jan _2 15:04:05 2006") + " "
	case f.times:
		line += strings.Repeat(" ", 25)
	}
	if r.Disabled {
		line += "# DISABLED "
	}
	if f.set {
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

// ruleNumbers reads the arguments as rule numbers and ranges of them.
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
			return nil, c.wrong("%q is not a rule number or a range like 100-200", w)
		}
		all = append(all, [2]uint16{uint16(lo), uint16(hi)})
	}
	return all, nil
}
