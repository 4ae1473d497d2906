package agent

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/weirnet/weir/observe"
)

// clusterMetrics are about the cluster, on a host that has one.
func (n *Node) clusterMetrics() ([]observe.Metric, error) {
	if n.cluster == nil {
		return nil, nil
	}
	return n.cluster.Metrics()
}

// nodeMetrics are about the agent.
func (n *Node) nodeMetrics() ([]observe.Metric, error) {
	problems := len(n.problems.All()) + n.hooks.Refused()
	all := []observe.Metric{
		n.config.Build.Metric(),
		observe.NewGauge("weir_problems", "Problems that weir status shows.", problems),
		observe.NewCounter("weir_connections_adopted_total",
			"Connections that were open before the rules and became states.", n.adoption.Count()),
		observe.NewGauge("process_start_time_seconds", "When the agent started, since the epoch.",
			float64(n.began.UnixMilli())/1e3),
		observe.NewGauge("go_goroutines", "Goroutines of the agent.", runtime.NumGoroutine()),
	}
	if rss, err := residentBytes(); err == nil {
		all = append(all, observe.NewGauge("process_resident_memory_bytes",
			"Memory of the agent, without what it shares with the kernel.", rss))
	}
	return all, nil
}

// residentBytes returns the memory of this process that is its own (RssAnon of proc_pid_status(5)).
func residentBytes() (uint64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"),
				10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no RssAnon")
}
