package cluster

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/observe"
)

// Status returns the cluster part of the node's status.
func (s *Service) Status() *api.Cluster {
	c := s.config.Client.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &api.Cluster{Name: s.config.Name, Store: c.Address, Connected: c.Connected,
		Revision: s.guarded.Stored().Revision, Hosts: len(s.desired.Hosts()),
		Version: s.force.number().String(), Trial: s.force.trial, Held: len(s.guarded.Held()),
		Claims: s.claims, StorePercent: c.PercentFull}
	if !c.Connected && c.Err != nil {
		a.StoreError = c.Err.Error()
	}
	if !c.Heard.IsZero() {
		silent := time.Since(c.Heard).Seconds()
		a.SilentSeconds = &silent
	}
	if s.report.Refused != nil {
		a.Refused, a.Why = s.report.Refused.String(), s.report.Why
	}
	if !s.heldAt.IsZero() {
		a.HeldSeconds = time.Since(s.heldAt).Seconds()
	}
	return a
}

// Metrics returns the metrics of the part.
func (s *Service) Metrics() ([]observe.Metric, error) {
	a := s.Status()
	s.mu.Lock()
	large := s.large
	s.mu.Unlock()
	all := []observe.Metric{
		observe.NewGauge("weir_store_connected", "1 while the host is connected to a weir-store.",
			observe.Bool(a.Connected)),
		observe.NewGauge("weir_store_held_removals",
			"Keys that the store lost and that the host still enforces.", a.Held),
		observe.NewCounter("weir_store_refused_values_total",
			"Values of the store that failed a check and were ignored.", a.Claims),
		observe.NewCounter("weir_store_refused_steps_total",
			"Steps that were refused since the copy would be too large.", large),
		observe.NewGauge("weir_store_unwritten_steps",
			"Steps that are enforced but not yet written to the copy on the disk.",
			s.unwrittenSteps()),
	}
	if a.SilentSeconds != nil {
		all = append(all, observe.NewGauge("weir_store_silent_seconds",
			"Time since the last message of the store.", *a.SilentSeconds))
	}
	return append(all, observe.NewGauge("weir_store_full_ratio",
		"How full the store is, from 0 to 1; 0 if that is not known.",
		float64(a.StorePercent)/100)), nil
}

// nearlyFull is from how many percent on a database is a problem: from 80 on, weir-store refuses
// pods.
const nearlyFull = 70

// noteFull shows that the store will refuse what hosts and administrators write.
func (s *Service) noteFull() {
	full := s.config.Client.State().PercentFull
	if full < nearlyFull {
		s.config.Problems.Solved(aboutFull)
		return
	}
	s.config.Problems.Set(aboutFull, fmt.Sprintf("the store is %d %% full: from "+
		"80 %% on it takes no more pods, from 90 %% on no more tables, rules and invitations, "+
		"from 95 %% on no hosts that join", full), "remove hosts and members of shared tables "+
		"that are not needed; the log of weir-store reports why it cannot free more space")
}

func (s *Service) unwrittenSteps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unwritten.count
}
