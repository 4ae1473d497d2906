package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// listFlags are ipfw's flags of show and list. The zero value lists the rules alone.
type listFlags struct {
	json, counters, rates, set, times, unix, compact, brief bool
	dynamic, dynamicOnly                                    bool
	only                                                    *uint8 // rules of this set alone
}

func fwShowCommand(c *call) action { return c.listRules(true) }

func fwListCommand(c *call) action { return c.listRules(false) }

func (c *call) listRules(counters bool) action {
	var f listFlags
	c.BoolVarP(&f.json, "json", "j", false, "print JSON")
	c.BoolVarP(&f.counters, "counters", "a", counters, "show packets and bytes")
	c.BoolVarP(&f.compact, "compact", "c", false,
		"leave \"ip from any to any\" out where it says nothing")
	c.BoolVarP(&f.brief, "brief", "b", false, "only number, action and comment of each rule")
	c.BoolVarP(&f.rates, "rates", "r", false,
		"read the counters twice, a second apart, and show rates and rules that never matched")
	c.BoolVarP(&f.set, "sets", "S", false, "show the set of each rule, and disabled rules")
	c.BoolVarP(&f.times, "times", "t", false, "show when each rule matched last")
	c.BoolVarP(&f.unix, "timestamps", "T", false, "the same, in seconds since 1970")
	c.BoolVarP(&f.dynamic, "states", "d", false, "list the live states too, as ipfw does")
	c.BoolVarP(&f.dynamicOnly, "only-states", "D", false, "list the live states alone")
	of := new(clusterFlags)
	if !counters { // the store has none
		of = c.clusterFlags()
	}
	c.takes(0, -1)
	c.complete(c.liveRules)
	return func() error {
		if of.given() {
			return c.listOfCluster(of, f, c.Args())
		}
		if f.json && (f.dynamic || f.dynamicOnly) {
			return usageError{what: c.command.name + ": -j has no states",
				hint: "weir fw states -j prints them"}
		}
		ranges, err := c.ruleNumbers(c.Args())
		if err != nil {
			return err
		}
		return c.printRules(&f, ranges)
	}
}

// printRules lists the rules in the ranges, or all.
func (c *call) printRules(f *listFlags, ranges numbers) error {
	var all api.Rules
	if err := c.get("/v1/rules", &all); err != nil {
		return err
	}
	if f.rates {
		if err := c.rates(&all); err != nil {
			return err
		}
	}
	rules, states, err := c.complement(f, ranges, all)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(slices.Clone(rules), func(r api.Rule) bool {
		return r.Disabled && !f.set && !f.json
	})
	if len(ranges) > 0 && len(shown) == 0 {
		return c.failed(advice{fmt.Errorf("no such rule: %s", ranges),
			"weir fw list shows the rules with their numbers"})
	}
	if f.json {
		all.Rules = shown
		return printJSON(c.out, all)
	}
	if f.rates {
		fmt.Fprintf(c.out, "never: not since %s\n", all.Since.Local().Format(time.DateTime))
	}
	l := newListing(*f, rules, states)
	l.rules(c.out, ranges, shown)
	l.heading(c.out, states, len(ranges) > 0)
	l.states(c.out, states, ranges)
	return nil
}

// ofNode reads the rules in the ranges, and the states if they are listed too.
func (c *call) ofNode(f *listFlags, ranges numbers) ([]api.Rule, []api.State, error) {
	var all api.Rules
	if err := c.get("/v1/rules", &all); err != nil {
		return nil, nil, err
	}
	return c.complement(f, ranges, all)
}

// complement picks the rules in the ranges, and reads the states if they are listed too.
func (c *call) complement(f *listFlags, ranges numbers, all api.Rules) ([]api.Rule, []api.State,
	error) {
	rules := slices.DeleteFunc(slices.Clone(all.Rules), func(r api.Rule) bool {
		return !ranges.has(r.Number) || f.only != nil && r.Set != *f.only
	})
	if !f.dynamic && !f.dynamicOnly {
		return rules, nil, nil
	}
	var s api.States
	if err := c.get("/v1/states", &s); err != nil {
		return nil, nil, err
	}
	return rules, ofRules(s.States, rules, f.only != nil), nil
}

// ofRules returns the states, or those of the rules if only is set.
func ofRules(states []api.State, rules []api.Rule, only bool) []api.State {
	numbers := map[uint16]bool{}
	for _, r := range rules {
		numbers[r.Number] = true
	}
	return slices.DeleteFunc(states, func(s api.State) bool { return only && !numbers[s.Rule] })
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

// String returns the ranges as they are written.
func (n numbers) String() string {
	var all []string
	for _, r := range n {
		one := strconv.Itoa(int(r[0]))
		if r[0] != r[1] {
			one += "-" + strconv.Itoa(int(r[1]))
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

// ruleNumbers reads arguments as rule numbers and ranges of them.
func (c *call) ruleNumbers(args []string) (numbers, error) {
	var all numbers
	for _, w := range args {
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
