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
		observe.NewGauge("weir_rules", "Rules, without the default rule.", count),
		observe.NewCounter("weir_ruleset_loads_total", "Rule sets put in force by this agent.",
			m.loads.Load()),
		observe.NewCounter("weir_table_reloads_total", "Files of tables that were read again.",
			reloads),
		observe.NewCounter("weir_table_reload_failures_total",
			"Files of tables that could not be read, or were wrong.", failed),
		observe.NewGauge("weir_table_timed_members", "Members of tables that have a timeout.",
			x.Timed),
		observe.NewCounter("weir_table_timeouts_total", "Members of tables that expired.", x.Ended),
		observe.NewCounter("weir_table_timed_refused_total",
			"Members with a timeout that were refused because there were too many.", x.Refused),
		observe.NewCounter("weir_table_timeouts_failed_total",
			"Failed attempts to remove an expired member.", x.Failed),
	}, nil
}
