package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// rules lists the rules in order of evaluation with their counters, disabled ones without, the
// default rule last.
func (n *Node) rules() (api.Rules, error) {
	a := api.Rules{Version: api.Version, Since: n.began}
	table, err := n.observer.Table()
	if err != nil {
		return a, err
	}
	a.Table = table
	if at := n.zeroed.Load(); at != nil {
		a.Since = *at
	}
	var counters []firewall.RuleCounter
	n.book.view(func(r ruleState, p *rule.Program) {
		if counters, err = n.engine.Rules(); err != nil {
			return
		}
		index := 0
		for _, one := range r.set.Rules {
			v := api.Rule{Number: one.Number, Set: one.Set, Text: one.Text()}
			if r.set.Disabled>>one.Set&1 == 1 {
				v.Disabled = true
			} else {
				count(&v, counters, index)
				index++
			}
			a.Rules = append(a.Rules, v)
		}
		last := api.Rule{Number: rule.DefaultNumber, Set: rule.Reserved,
			Text: defaultText(r.strict)}
		count(&last, counters, index)
		a.Rules = append(a.Rules, last)
	})
	return a, err
}

func defaultText(strict bool) string {
	if strict {
		return "deny ip from any to any"
	}
	return "allow ip from any to any"
}

// count fills in the counters of the rule at an index.
func count(v *api.Rule, counters []firewall.RuleCounter, index int) {
	if index >= len(counters) {
		return
	}
	c := counters[index]
	v.Packets, v.Bytes = c.Packets, c.Bytes
	if c.Last != 0 {
		at := time.Now().Add(time.Duration(c.Last - clock.Now())).Round(time.Millisecond)
		v.Last = &at
	}
}

// tables lists the tables and their members.
func (n *Node) tables() (api.Tables, error) {
	a := api.Tables{Version: api.Version, Tables: []api.Table{}}
	n.book.view(func(r ruleState, _ *rule.Program) {
		for _, name := range slices.Sorted(maps.Keys(r.set.Tables)) {
			t := api.Table{Name: name, Entries: []api.TableEntry{}}
			members := r.set.Tables[name]
			for _, p := range slices.SortedFunc(maps.Keys(members), comparePrefixes) {
				t.Entries = append(t.Entries, api.TableEntry{Prefix: p.String(), Value: members[p]})
			}
			a.Tables = append(a.Tables, t)
		}
	})
	if n.pods.Load() != nil {
		a.Tables = append(a.Tables, n.pods.Load().tables()...)
	}
	return a, nil
}

// tables lists the tables of labels.
func (p *pods) tables() (all []api.Table) {
	tables := p.labels.all()
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := api.Table{Name: name, Label: true, Entries: []api.TableEntry{}}
		for _, e := range tables[name] {
			t.Entries = append(t.Entries, api.TableEntry{Prefix: e.Prefix.String()})
		}
		all = append(all, t)
	}
	return all
}

// sets returns which sets are disabled and which have rules.
func (n *Node) sets() (api.Sets, error) {
	a := api.Sets{Version: api.Version, Disabled: []int{}, Used: []api.Used{}}
	n.book.view(func(r ruleState, _ *rule.Program) {
		var rules [32]int
		for _, one := range r.set.Rules {
			rules[one.Set]++
		}
		for set, used := range rules {
			if r.set.Disabled>>set&1 == 1 {
				a.Disabled = append(a.Disabled, set)
			}
			if used > 0 {
				a.Used = append(a.Used, api.Used{Set: set, Rules: used})
			}
		}
	})
	return a, nil
}
