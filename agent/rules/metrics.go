package rules

import (
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/observe"
)

// Metrics are about the rules and their tables.
func (m *Manager) Metrics() ([]observe.Metric, error) {
	var count int
	m.View(func(r Version, _ *program.Program) { count = len(r.Set.Rules) })
	reloads, failed := m.Reloads()
	x := m.Expiry()
	return []observe.Metric{
		observe.NewMetric(observe.Gauge, "weir_rules", "Rules, without the default rule.",
			float64(count)),
		observe.NewMetric(observe.Counter, "weir_ruleset_loads_total",
			"Rule sets put in force by this agent.", float64(m.loads.Load())),
		observe.NewMetric(observe.Counter, "weir_table_reloads_total",
			"Files of tables that were read again.", float64(reloads)),
		observe.NewMetric(observe.Counter, "weir_table_reload_failures_total",
			"Files of tables that could not be read, or were wrong.", float64(failed)),
		observe.NewMetric(observe.Gauge, "weir_table_timed_members",
			"Members of tables that have a timeout.", float64(x.Timed)),
		observe.NewMetric(observe.Counter, "weir_table_timeouts_total",
			"Members of tables that expired.", float64(x.Ended)),
		observe.NewMetric(observe.Counter, "weir_table_timed_refused_total",
			"Members with a timeout that were refused because there were too many.",
			float64(x.Refused)),
		observe.NewMetric(observe.Counter, "weir_table_timeouts_failed_total",
			"Failed attempts to remove an expired member.", float64(x.Failed)),
	}, nil
}
