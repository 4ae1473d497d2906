package enginetest

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// clone returns a copy that may evaluate a packet and leaves t as it is. It evicts nothing: it has
// space for any number of states.
func (t *Model) clone() *Model {
	c := *t
	c.counts, c.frags = slices.Clone(t.counts), slices.Clone(t.frags)
	c.decisions, c.chosen, c.refused, c.seen = maps.Clone(t.decisions), nil, nil, nil
	c.reassignedTrack, c.rates, c.piped = nil, maps.Clone(t.rates), maps.Clone(t.piped)
	c.states = nil
	for _, s := range t.states {
		one := *s
		c.states = append(c.states, &one)
	}
	return &c
}

// SetTable replaces the members of a table.
func (t *Model) SetTable(name string, entries []rule.TableEntry) {
	t.tables[name] = nil
	for _, e := range entries {
		t.AddTable(name, e)
	}
}

// AddTable adds a member, or replaces its value.
func (t *Model) AddTable(name string, e rule.TableEntry) {
	t.DeleteTable(name, e.Prefix)
	e.Prefix = e.Prefix.Masked()
	t.tables[name] = append(t.tables[name], e)
}

// DeleteTable removes a member and reports whether it was there.
func (t *Model) DeleteTable(name string, p netip.Prefix) bool {
	var left []rule.TableEntry
	for _, e := range t.tables[name] {
		if e.Prefix != p.Masked() {
			left = append(left, e)
		}
	}
	gone := len(left) < len(t.tables[name])
	t.tables[name] = left
	return gone
}

// SetInterfaces replaces the interfaces of the host.
func (t *Model) SetInterfaces(ifs []firewall.Interface) { t.ifs = ifs }

// SetRoutes replaces the routes of the host.
func (t *Model) SetRoutes(routes []firewall.Route) { t.routes = routes }

// Rules returns the counters by slot.
func (t *Model) Rules() []firewall.RuleCounter { return t.counts }

// Zero sets the counters of rules to 0; 0 means all.
func (t *Model) Zero(number uint16) {
	for i := range t.counts {
		if c := &t.counts[i]; number == 0 || c.Number == number {
			*c = firewall.RuleCounter{Key: c.Key, Number: c.Number}
		}
	}
}

// Decisions returns how many packets got each decision.
func (t *Model) Decisions() map[firewall.Decision]firewall.Count { return t.decisions }

// States returns all states, also expired ones that no packet or sweep has removed yet.
func (t *Model) States() []firewall.State {
	var all []firewall.State
	for _, s := range t.states {
		all = append(all, t.show(s))
	}
	return all
}

// show returns a state as an engine shows it.
func (t *Model) show(s *modelState) firewall.State {
	st := firewall.State{Proto: s.Proto, FlowName: s.name, Rule: t.rules[t.slot(s.rule)].Number,
		Key: s.rule, Phase: s.Phase(),
		Created: s.created, Last: s.Last(), Deadline: s.Deadline(&t.Options.Timeouts)}
	st.From, st.To = s.key.DisplayEnds(s.from)
	st.Query, st.Link = s.key.ICMPQueryType(s.from), s.key.Link()
	for i, side := range s.Sides {
		st.Packets[i], st.Bytes[i] = side.Packets, side.Bytes
	}
	return st
}

// Keys returns the identities of a Program's rules by slot.
func Keys(p *program.Program) []uint64 {
	keys := make([]uint64, len(p.Rules))
	for i := range p.Rules {
		keys[i] = p.Rules[i].Key
	}
	return keys
}
