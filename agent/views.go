package agent

import (
	"github.com/weirnet/weir/agent/api"
)

// listRules returns the rules with their counters, and how full the state table is.
func (n *Node) listRules() (api.Rules, error) {
	table, err := n.observer.Table()
	if err != nil {
		return api.Rules{Version: api.Version}, err
	}
	a, err := n.rules.List()
	a.Table = table
	return a, err
}

// listTables returns the tables of the rules and those of labels.
func (n *Node) listTables() (api.Tables, error) {
	a := n.rules.Tables()
	a.Tables = append(a.Tables, n.pods.Tables()...)
	return a, nil
}
