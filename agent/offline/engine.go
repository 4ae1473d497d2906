package offline

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/rule"
)

// Engine makes a user-space engine with the rules and tables of a rule set, to ask it questions.
func Engine(o firewall.Options, p *rule.Program, set *rule.Ruleset, ifs []firewall.Interface, routes []firewall.Route) (*soft.Engine, error) {
	e, err := soft.New(soft.Options{Options: o})
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

// Small makes options for an engine that is asked a few questions: the settings, but little memory.
func Small(o firewall.Options) firewall.Options {
	o.MaxStates, o.MaxEmbryonic, o.MaxTracks = min(o.MaxStates, 1024), min(o.MaxEmbryonic, 1024), min(o.MaxTracks, 1024)
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
