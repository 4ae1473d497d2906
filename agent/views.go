package agent

import (
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
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
	if p := n.pods.Load(); p != nil {
		a.Tables = append(a.Tables, p.tables()...)
	}
	return a, nil
}

// labels returns the tables of labels.
func (n *Node) labels() map[string][]firewall.TableEntry {
	if p := n.pods.Load(); p != nil {
		return p.labels.all()
	}
	return nil
}
