package rules

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// List returns the rules in order of evaluation with their counters, disabled ones without, the
// default rule last.
func (m *Manager) List() (api.Rules, error) {
	a := api.Rules{Version: api.Version, Since: m.began}
	if at := m.zeroed.Load(); at != nil {
		a.Since = *at
	}
	var counters []firewall.RuleCounter
	var err error
	m.View(func(r Version, p *program.Program) {
		if counters, err = m.config.Engine.Rules(); err != nil {
			return
		}
		index := 0
		for _, one := range r.Set.Rules {
			v := api.Rule{Number: one.Number, Set: one.Set, Text: one.Text()}
			if r.Set.Disabled>>one.Set&1 == 1 {
				v.Disabled = true
			} else {
				count(&v, counters, index)
				index++
			}
			a.Rules = append(a.Rules, v)
		}
		last := api.Rule{Number: program.DefaultNumber, Set: rule.ReservedSet,
			Text: defaultText(r.Strict)}
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
		at := time.Now().Add(c.Last - clock.Now()).Round(time.Millisecond)
		v.Last = &at
	}
}

// Tables returns what q asks of the tables, as they are now. The members are made while they are
// read, without the lock: a table can have millions.
func (m *Manager) Tables(q api.TableQuery) (all []api.TableView) {
	now := m.config.Clock.Now()
	m.View(func(r Version, _ *program.Program) {
		for _, name := range slices.Sorted(maps.Keys(r.Set.Tables)) {
			if q.Picks(name) {
				all = append(all, tableView(r.Set, name, q, now))
			}
		}
	})
	return all
}

// tableView copies what q asks of a table. A List never changes and is not copied.
func tableView(set *rule.Ruleset, name string, q api.TableQuery,
	now time.Duration) api.TableView {
	v := api.TableView{Table: api.Table{Name: name, Items: set.Size(name)}}
	l := set.Lists[name]
	if l != nil {
		v.File = l.File
	}
	switch {
	case q.NoMembers:
		v.Members = slices.Values([]api.TableEntry(nil))
	case q.Address.IsValid():
		var some []api.TableEntry
		if e, found := set.LookupEntry(name, q.Address); found {
			some = append(some, tableEntry(e, set.Deadlines[name], now))
		}
		v.Members = slices.Values(some)
	case l != nil:
		v.Members = func(yield func(api.TableEntry) bool) {
			for _, p := range l.Prefixes {
				if !yield(api.TableEntry{Prefix: p.String()}) {
					return
				}
			}
		}
	default:
		entries, ends := set.Entries(name), maps.Clone(set.Deadlines[name])
		v.Members = func(yield func(api.TableEntry) bool) {
			slices.SortFunc(entries, func(a, b rule.TableEntry) int {
				return a.Prefix.Compare(b.Prefix)
			})
			for _, e := range entries {
				if !yield(tableEntry(e, ends, now)) {
					return
				}
			}
		}
	}
	return v
}

// tableEntry is a member for people. ends are the times of its table at which members end.
func tableEntry(e rule.TableEntry, ends map[netip.Prefix]time.Duration,
	now time.Duration) api.TableEntry {
	v := api.TableEntry{Prefix: e.Prefix.String(), Value: e.Value}
	if at, timed := ends[e.Prefix]; timed {
		left := max(clock.Seconds(at-now), 0)
		v.LeftSeconds = &left
	}
	return v
}

// Pipes returns the pipes in the order of their numbers.
func (m *Manager) Pipes() (api.Pipes, error) {
	a := api.Pipes{Version: api.Version, Pipes: []api.Pipe{}}
	m.View(func(r Version, _ *program.Program) {
		for _, number := range slices.Sorted(maps.Keys(r.Set.Pipes)) {
			x := r.Set.Pipes[number]
			a.Pipes = append(a.Pipes, api.Pipe{Number: number, Config: x.String(),
				Bandwidth: x.Bandwidth, Burst: x.Burst})
		}
	})
	return a, nil
}

// NATs returns the instances of nat in the order of their numbers.
func (m *Manager) NATs() (api.NATs, error) {
	a := api.NATs{Version: api.Version, NATs: []api.NAT{}}
	m.View(func(r Version, _ *program.Program) {
		for _, number := range slices.Sorted(maps.Keys(r.Set.NATs)) {
			a.NATs = append(a.NATs, api.NAT{Number: number,
				Config: rule.FormatNAT(r.Set.NATs[number])})
		}
	})
	return a, nil
}

// Sets returns which sets are disabled and which have rules.
func (m *Manager) Sets() (api.Sets, error) {
	a := api.Sets{Version: api.Version, Disabled: []int{}, Used: []api.SetCount{}}
	m.View(func(r Version, _ *program.Program) {
		var rules [32]int
		for _, one := range r.Set.Rules {
			rules[one.Set]++
		}
		for set, used := range rules {
			if r.Set.Disabled>>set&1 == 1 {
				a.Disabled = append(a.Disabled, set)
			}
			if used > 0 {
				a.Used = append(a.Used, api.SetCount{Set: set, Rules: used})
			}
		}
	})
	return a, nil
}
