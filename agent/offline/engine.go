package offline

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/rule"
)

// Engine makes a user-space engine with the rules and tables of a rule set, to ask it questions.
func Engine(o firewall.Options, p *rule.Program, set *rule.Ruleset, ifs []firewall.Interface,
	routes []firewall.Route) (*soft.Engine, error) {
	return newEngine(soft.Options{Options: o}, p, set, ifs, routes)
}

func newEngine(o soft.Options, p *rule.Program, set *rule.Ruleset, ifs []firewall.Interface,
	routes []firewall.Route) (*soft.Engine, error) {
	e, err := soft.New(o)
	if err != nil {
		return nil, err
	}
	for name := range set.Tables {
		if err := e.SetTable(name, Entries(set.Tables[name])); err != nil {
			return nil, err
		}
	}
	if err := e.SetInterfaces(ifs); err != nil {
		return nil, err
	}
	if err := e.SetRoutes(routes); err != nil {
		return nil, err
	}
	return e, e.Load(p)
}

// Small returns the options with small tables, for an engine that answers a few questions.
func Small(o firewall.Options) firewall.Options {
	o.MaxStates, o.MaxHalfOpen, o.MaxTracks = min(o.MaxStates, 1024), min(o.MaxHalfOpen, 1024),
		min(o.MaxTracks, 1024)
	return o
}

// Entries returns the members of a table as engines take them.
func Entries(t rule.Table) []firewall.TableEntry {
	all := make([]firewall.TableEntry, 0, len(t))
	for p, v := range t {
		all = append(all, firewall.TableEntry{Prefix: p, Value: v})
	}
	return all
}

// Member looks an address up in a table: the longest prefix that holds it counts.
func Member(t rule.Table, a netip.Addr) (value uint32, found bool) {
	if !a.IsValid() || len(t) == 0 {
		return 0, false
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return 0, false
		}
		if v, ok := t[p]; ok {
			return v, true
		}
	}
	return 0, false
}
