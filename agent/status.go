package agent

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// status returns the state of the node.
func (n *Node) status() (api.Status, error) {
	// The clock may have been set since the start.
	began := time.Now().Add(-time.Since(n.began)).Round(time.Millisecond)
	s := api.Status{Version: api.Version, PID: os.Getpid(), Since: began,
		TakenOver: n.engine.TakenOver(), Pods: n.pods.CanAttach(),
		StatesMax: n.config.Settings.Engine.MaxStates, Weir: n.config.Build.Version}
	// without a name, the page shows none
	s.Host, _ = os.Hostname()
	s.Interfaces, s.Problems = n.hooks.Interfaces()
	s.Skipped = n.hooks.Skipped()
	s.Problems = append(s.Problems, n.problems.All()...)
	s.Problems = append(s.Problems, n.peers.Problems()...)
	s.Problems = append(s.Problems, n.pods.Problems()...)
	s.Warnings = n.netfilter.Warnings()
	n.rules.AddStatus(&s)
	s.Adopted = n.adoption.Count()
	s.Forwards, s.Masquerades = n.nat.Forwards(), n.nat.Masquerades()
	s.Binats = n.nat.Binats()
	s.Tunnel = n.peers.Tunnel()
	if n.cluster != nil {
		s.Cluster = n.cluster.Status()
	}
	s.Healthy = len(s.Problems) == 0
	err := n.observer.AddStatus(&s)
	return s, err
}

// readyLine describes in one line what is in force.
func (n *Node) readyLine() string {
	s, err := n.status()
	if err != nil {
		return "ready, but: " + err.Error()
	}
	names := "no interface yet"
	for i, f := range s.Interfaces {
		if i == 0 {
			names = f.Name
			continue
		}
		names += " " + f.Name
	}
	line := fmt.Sprintf("ready: guards %s, %d rules from %s, default %s", names, s.Rules, s.Source,
		s.Default)
	if s.TakenOver {
		line += fmt.Sprintf(", took over %d states", s.States)
	}
	if migrated := n.engine.Migrated(); migrated > 0 {
		line += fmt.Sprintf(", migrated %d states", migrated)
	}
	if s.Trial != nil {
		line += fmt.Sprintf(", on trial for %.0f s: weir confirm keeps the rules",
			s.Trial.LeftSeconds)
	}
	if s.Adopted > 0 {
		line += fmt.Sprintf(", adopted %d open connections", s.Adopted)
	}
	return line
}

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

// listTables answers with the tables of the rules, those that all hosts of a cluster have and those
// of labels, as far as the request asks for them.
func (n *Node) listTables(w http.ResponseWriter, r *http.Request) {
	q, err := api.ParseTableQuery(r.URL.Query())
	if err != nil {
		api.WriteError(w, http.StatusBadRequest, err)
		return
	}
	all := n.rules.Tables(q)
	for _, t := range append(n.shared.List(q), n.pods.Tables()...) {
		if q.Picks(t.Name) {
			all = append(all, q.View(t))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	// an error is that of the connection: no client reads any more
	_ = api.WriteTables(w, all)
}
