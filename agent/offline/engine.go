// Package offline works on rule files alone, with the user-space engine. It explains what they
// would do with a packet, and replays a capture. It needs no node and no rights. The running agent
// uses its Question and Explain for the same answers.
package offline

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Engine makes a user-space engine with the rules and tables of a rule set, to ask it questions.
func Engine(o firewall.Options, p *program.Program, set *rule.Ruleset, ifs []firewall.Interface,
	routes []firewall.Route) (*soft.Engine, error) {
	return newEngine(soft.Options{Options: o}, p, set, ifs, routes)
}

func newEngine(o soft.Options, p *program.Program, set *rule.Ruleset, ifs []firewall.Interface,
	routes []firewall.Route) (*soft.Engine, error) {
	e, err := soft.New(o)
	if err != nil {
		return nil, err
	}
	for name := range set.Tables {
		if err := e.SetTable(name, set.Entries(name)); err != nil {
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

// SmallTables returns the options with small tables, for an engine that answers a few questions.
func SmallTables(o firewall.Options) firewall.Options {
	o.MaxStates, o.MaxHalfOpen, o.MaxTracks = min(o.MaxStates, 1024), min(o.MaxHalfOpen, 1024),
		min(o.MaxTracks, 1024)
	return o
}
