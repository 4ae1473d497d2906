package agent

import (
	"fmt"
	"net/http"
	"os"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
)

// status returns the state of the node.
func (n *Node) status() (api.Status, error) {
	s := api.Status{Version: api.Version, PID: os.Getpid(), Since: n.began,
		TakenOver: n.engine.TakenOver(), Pods: len(n.config.Settings.Pods.Ranges) > 0,
		StatesMax: n.config.Settings.Engine.MaxStates, Reasons: map[string]uint64{},
		Default: "allow", Weir: n.config.Build.Version}
	// without a name, the page shows none
	s.Host, _ = os.Hostname()
	s.Interfaces, s.Problems = n.hooks.Interfaces()
	s.Skipped = n.hooks.Skipped()
	s.Problems = append(s.Problems, n.problems.All()...)
	s.Problems = append(s.Problems, n.peers.Problems()...)
	s.Problems = append(s.Problems, n.pods.Problems()...)
	s.Warnings = n.netfilter.Warnings()
	n.rules.View(func(r rules.Version, _ *program.Program) {
		s.Rules, s.Source = len(r.Set.Rules), r.Source
		if r.Strict {
			s.Default = "deny"
		}
	})
	if name, left, on := n.rules.TrialLeft(); on {
		s.Trial = &api.Trial{Name: name, LeftSeconds: clock.Seconds(left)}
	}
	if at, session, on := n.rules.InPanic(); on {
		s.Panic = &api.PanicState{Since: at, Session: session}
	}
	for _, err := range n.engine.States() {
		if err != nil {
			return s, err
		}
		s.States++
	}
	decisions, err := n.engine.Decisions()
	if err != nil {
		return s, err
	}
	for reason, packets := range firewall.ByReason(decisions) {
		if packets > 0 && reason != firewall.ReasonRule {
			s.Reasons[reason.String()] = packets
		}
	}
	s.Forwards, s.Masquerades = n.nat.Forwards(), n.nat.Masquerades()
	s.Binats = n.nat.Binats()
	s.Tunnel = n.peers.Tunnel()
	if n.cluster != nil {
		s.Cluster = n.cluster.Status()
	}
	if s.Table, err = n.observer.Table(); err != nil {
		return s, err
	}
	s.Adopted = n.adoption.Count()
	s.Healthy = len(s.Problems) == 0
	return s, nil
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
