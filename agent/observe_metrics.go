package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/rule"
)

// hooks are the words for directions.
var hooks = [...]string{firewall.In: "in", firewall.Out: "out"}

// metrics reads everything that is counted. The counters are the engine's own: they are exact
// whether or not events are lost.
func (n *Node) metrics() ([]observe.Metric, error) {
	var all []observe.Metric
	for _, read := range []func() ([]observe.Metric, error){n.packetMetrics, n.stateMetrics, n.peers.metrics, n.nodeMetrics} {
		some, err := read()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return append(all, n.observer.metrics()...), nil
}

// packetMetrics are what the rules and the reasons count.
func (n *Node) packetMetrics() ([]observe.Metric, error) {
	decisions, err := n.engine.Decisions()
	if err != nil {
		return nil, err
	}
	judged := observe.Metric{Name: "weir_packets_total", Type: observe.Counter,
		Help: "Packets judged, by verdict, what decided (the word rule for the rules, or another " +
			"reason, docs/metrics.md) and hook."}
	judgedBytes := observe.Metric{Name: "weir_bytes_total", Type: observe.Counter,
		Help: "Bytes of the packets judged, by the same."}
	for i := range firewall.NumDecisions {
		d := firewall.DecisionAt(i)
		c, ok := decisions[d]
		if !ok {
			continue
		}
		labels := []string{"verdict", "drop", "reason", d.Reason.String(), "hook", hooks[d.Dir]}
		if d.Pass {
			labels[1] = "pass"
		}
		judged.Add(float64(c.Packets), labels...)
		judgedBytes.Add(float64(c.Bytes), labels...)
	}
	rules, err := n.rules()
	if err != nil {
		return nil, err
	}
	packets := observe.Metric{Name: "weir_rule_packets_total", Type: observe.Counter,
		Help: "Packets that rules of a number matched."}
	volume := observe.Metric{Name: "weir_rule_bytes_total", Type: observe.Counter,
		Help: "Bytes of the packets that rules of a number matched."}
	for i := 0; i < len(rules.Rules); {
		sum, j := rules.Rules[i], i+1
		for ; j < len(rules.Rules) && rules.Rules[j].Number == sum.Number; j++ {
			sum.Packets += rules.Rules[j].Packets
			sum.Bytes += rules.Rules[j].Bytes
		}
		number := strconv.Itoa(int(sum.Number))
		packets.Add(float64(sum.Packets), "rule", number)
		volume.Add(float64(sum.Bytes), "rule", number)
		i = j
	}
	return []observe.Metric{judged, judgedBytes, packets, volume}, nil
}

// stateMetrics are about the state table. The states are counted by a walk over them.
func (n *Node) stateMetrics() ([]observe.Metric, error) {
	s, err := n.engine.Stats()
	if err != nil {
		return nil, err
	}
	ages := map[ageKey][]int{}
	now := monotonic()
	for state, err := range n.engine.States() {
		if err != nil {
			return nil, err
		}
		addAge(ages, &state, now)
	}
	live := observe.Metric{Name: "weir_states", Type: observe.Gauge,
		Help: "Live states by protocol and phase."}
	for k, counts := range ages {
		sum := 0
		for _, c := range counts {
			sum += c
		}
		live.Add(float64(sum), "proto", k.proto, "phase", k.phase)
	}
	slices.SortFunc(live.Samples, func(a, b observe.Sample) int {
		return slices.Compare(a.Labels, b.Labels)
	})
	pool := observe.Metric{Name: "weir_states_pool", Type: observe.Gauge,
		Help: "States by pool, with expired ones that the sweep has not met yet."}
	room := observe.Metric{Name: "weir_states_pool_limit", Type: observe.Gauge,
		Help: "How many states a pool may hold."}
	pool.Add(float64(s.States), "pool", "all")
	pool.Add(float64(s.HalfOpen), "pool", "half_open")
	room.Add(float64(s.MaxStates), "pool", "all")
	room.Add(float64(s.MaxHalfOpen), "pool", "half_open")
	removed := observe.Metric{Name: "weir_states_removed_total", Type: observe.Counter,
		Help: "States that ended, by why."}
	for _, why := range slices.Sorted(maps.Keys(s.Removed)) {
		removed.Add(float64(s.Removed[why]), "why", why)
	}
	decisions, err := n.engine.Decisions()
	if err != nil {
		return nil, err
	}
	reasons := firewall.ByReason(decisions)
	refused := observe.Metric{Name: "weir_states_refused_total", Type: observe.Counter,
		Help: "Packets dropped because their state could not be made."}
	for _, r := range refusals {
		refused.Add(float64(reasons[r]), "reason", r.String())
	}
	return []observe.Metric{live, pool, room, removed, refused,
		gauge("weir_translations",
			"Flows that are translated. Each takes two places of the state table beside that of "+
				"its state.", float64(s.Translations.Now)),
		gauge("weir_translations_limit", "How many flows may be translated.",
			float64(s.Translations.Max)),
		counter("weir_translations_made_total", "Flows that were translated.",
			float64(s.Translations.Made)),
		counter("weir_translations_evicted_total",
			"Translations that gave way to others: no port was free, or no room.",
			float64(s.Translations.Evicted)),
		counter("weir_translations_refused_total",
			"Packets dropped because no port was free and no translation could give way.",
			float64(reasons[firewall.ReasonNATPorts])),
		counter("weir_states_created_total", "States made.", float64(s.Created)),
		counter("weir_answers_unsent_total",
			"Resets and ICMP errors that were due and could not be sent.", float64(s.Unanswered)),
		gauge("weir_syn_cookies_on",
			"1 while SYNs to services of the host are answered by SYN cookies.",
			boolean(s.Cookies.On)),
		counter("weir_syn_cookies_sent_total", "SYNs answered by SYN cookies.",
			float64(s.Cookies.Sent)),
		counter("weir_syn_cookies_redeemed_total", "SYN cookies that came back: connections.",
			float64(s.Cookies.Kept)),
		gauge("weir_sweep_lag_seconds",
			"No expired state is older: a pass of the sweep, or longer when it stands still.",
			s.Sweep.Lag.Seconds()),
		gauge("weir_sweep_pass_seconds",
			"What the last pass of the sweep took: no expired state is older.",
			s.Sweep.Pass.Seconds()),
		gauge("weir_sweep_longest_tick_seconds", "Work of the longest tick of the sweep.",
			s.Sweep.Longest.Seconds()),
		counter("weir_sweep_work_seconds_total", "Time that the sweep has worked.",
			s.Sweep.Work.Seconds()),
		counter("weir_events_lost_in_kernel_total",
			"Events that found the ring in the kernel full.", float64(s.Lost)),
	}, nil
}

// nodeMetrics are about the agent and its rules.
func (n *Node) nodeMetrics() ([]observe.Metric, error) {
	count := 0
	n.book.view(func(r ruleState, _ *rule.Program) { count = len(r.set.Rules) })
	n.mu.Lock()
	guarded, adopted, problems := len(n.attached), n.adopted, len(n.problems.list())+len(n.refused)
	n.mu.Unlock()
	all := []observe.Metric{
		gauge("weir_rules", "Rules, without the default rule.", float64(count)),
		counter("weir_ruleset_loads_total", "Rule sets put in force by this agent.",
			float64(n.loads.Load())),
		gauge("weir_interfaces_guarded", "Interfaces with hooks.", float64(guarded)),
		gauge("weir_problems", "Problems that weir status tells.", float64(problems)),
		counter("weir_connections_adopted_total",
			"Connections that were open before the rules and became states.", float64(adopted)),
		gauge("process_start_time_seconds", "When the agent started, since the epoch.",
			float64(n.began.UnixMilli())/1e3),
		gauge("go_goroutines", "Goroutines of the agent.", float64(runtime.NumGoroutine())),
	}
	pods := 0
	if n.pods.Load() != nil {
		pods = len(n.pods.Load().manager.List())
	}
	all = append(all, gauge("weir_pods", "Containers that this node gives a network.",
		float64(pods)))
	if rss, err := residentBytes(); err == nil {
		all = append(all, gauge("process_resident_memory_bytes",
			"Memory of the agent, without what it shares with the kernel.", float64(rss)))
	}
	return all, nil
}

// metrics are about the stream of events.
func (o *observer) metrics() []observe.Metric {
	events := observe.Metric{Name: "weir_events_total", Type: observe.Counter,
		Help: "Events told by the engine, by kind and hook."}
	for _, k := range eventKinds {
		for dir, hook := range hooks {
			events.Add(float64(o.hub.CountAt(k, firewall.Direction(dir))), "kind",
				observe.KindName(k), "hook", hook)
		}
	}
	return []observe.Metric{events,
		counter("weir_events_lost_total",
			"Events that some reader missed, in the kernel or in its queue.",
			float64(o.hub.Lost())),
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func counter(name, help string, v float64) observe.Metric {
	return observe.One(observe.Counter, name, help, v)
}

func gauge(name, help string, v float64) observe.Metric {
	return observe.One(observe.Gauge, name, help, v)
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

// serveScrapes answers scrapes, and nothing else, on the address of the settings, if there is one.
func (n *Node) serveScrapes() (stop func() error, err error) {
	if n.config.Settings.Metrics == "" {
		return nil, nil
	}
	served := make(chan error, 1)
	s, err := observe.ServeMetrics(n.config.Settings.Metrics, n.metrics, served)
	if err != nil {
		return nil, err
	}
	go func() {
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			n.problem("metrics are not served any more: "+err.Error(), "restart the node")
		}
	}()
	return s.Close, nil
}
