package watch

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

// hooks are the words for directions.
var hooks = [...]string{firewall.In: "in", firewall.Out: "out"}

// Metrics reads everything that is counted. The counters are the engine's own: they are exact
// whether or not events are lost.
func (o *Observer) Metrics() ([]observe.Metric, error) {
	var all []observe.Metric
	own := []func() ([]observe.Metric, error){o.packetMetrics, o.stateMetrics}
	for _, read := range slices.Concat(own, o.config.Metrics) {
		some, err := read()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return append(append(all, o.eventMetrics()...), o.historyMetrics()...), nil
}

// packetMetrics are what the rules and the reasons count.
func (o *Observer) packetMetrics() ([]observe.Metric, error) {
	decisions, err := o.config.Engine.Decisions()
	if err != nil {
		return nil, err
	}
	evaluated := observe.Metric{Name: "weir_packets_total", Type: observe.Counter,
		Help: "Packets evaluated, by verdict, reason (rule when a rule decided; " +
			"docs/metrics.md has the others) and hook."}
	evaluatedBytes := observe.Metric{Name: "weir_bytes_total", Type: observe.Counter,
		Help: "Bytes of the packets evaluated, with the same labels."}
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
		evaluated.Add(float64(c.Packets), labels...)
		evaluatedBytes.Add(float64(c.Bytes), labels...)
	}
	rules, err := o.config.Rules.List()
	if err != nil {
		return nil, err
	}
	packets := observe.Metric{Name: "weir_rule_packets_total", Type: observe.Counter,
		Help: "Packets matched by the rules with this number."}
	volume := observe.Metric{Name: "weir_rule_bytes_total", Type: observe.Counter,
		Help: "Bytes of the packets matched by the rules with this number."}
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
	return []observe.Metric{evaluated, evaluatedBytes, packets, volume}, nil
}

// stateMetrics are about the state table. The states are counted by a walk over them.
func (o *Observer) stateMetrics() ([]observe.Metric, error) {
	s, err := o.config.Engine.Stats()
	if err != nil {
		return nil, err
	}
	ages := map[ageKey][]int{}
	now := clock.Now()
	for state, err := range o.config.Engine.States() {
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
		Help: "States by pool, including expired ones that the sweep has not removed yet."}
	limit := observe.Metric{Name: "weir_states_pool_limit", Type: observe.Gauge,
		Help: "How many states a pool may hold."}
	pool.Add(float64(s.States), "pool", "all")
	pool.Add(float64(s.HalfOpen), "pool", "half_open")
	limit.Add(float64(s.MaxStates), "pool", "all")
	limit.Add(float64(s.MaxHalfOpen), "pool", "half_open")
	removed := observe.Metric{Name: "weir_states_removed_total", Type: observe.Counter,
		Help: "States that ended, by reason."}
	for _, reason := range slices.Sorted(maps.Keys(s.Removed)) {
		removed.Add(float64(s.Removed[reason]), "reason", reason)
	}
	decisions, err := o.config.Engine.Decisions()
	if err != nil {
		return nil, err
	}
	reasons := firewall.ByReason(decisions)
	refused := observe.Metric{Name: "weir_states_refused_total", Type: observe.Counter,
		Help: "Packets dropped because their state could not be made."}
	for _, r := range refusals {
		refused.Add(float64(reasons[r]), "reason", r.String())
	}
	return []observe.Metric{live, pool, limit, removed, refused,
		observe.NewGauge("weir_translations",
			"Flows that are translated. Each takes two entries of the state table beside that of "+
				"its state.", s.Translations.Now),
		observe.NewGauge("weir_translations_limit", "How many flows may be translated.",
			s.Translations.Max),
		observe.NewCounter("weir_translations_made_total", "Flows that were translated.",
			s.Translations.Made),
		observe.NewCounter("weir_translations_evicted_total",
			"Translations evicted for others: no port or no table entry was free.",
			s.Translations.Evicted),
		observe.NewCounter("weir_translations_refused_total",
			"Packets dropped because no port was free and no translation could be evicted.",
			reasons[firewall.ReasonNATPorts]),
		observe.NewCounter("weir_states_created_total", "States made.", s.Created),
		observe.NewCounter("weir_answers_unsent_total",
			"Resets and ICMP errors that were not sent.", s.Unanswered),
		observe.NewCounter("weir_rates_full_total",
			"Packets of rules with limit-rate for which there was no space for a bucket.",
			s.RatesFull),
		observe.NewGauge("weir_syn_cookies_on",
			"1 while SYNs to services of the host are answered by SYN cookies.",
			observe.Bool(s.Cookies.On)),
		observe.NewCounter("weir_syn_cookies_sent_total", "SYNs answered by SYN cookies.",
			s.Cookies.Sent),
		observe.NewCounter("weir_syn_cookies_redeemed_total",
			"SYN cookies that came back: connections.", s.Cookies.Redeemed),
		observe.NewGauge("weir_sweep_lag_seconds",
			"Age of the oldest expired state not yet swept; normally one pass of the sweep.",
			s.Sweep.Lag.Seconds()),
		observe.NewGauge("weir_sweep_pass_seconds", "Duration of the last pass of the sweep.",
			s.Sweep.Pass.Seconds()),
		observe.NewGauge("weir_sweep_longest_tick_seconds",
			"Longest time that one tick of the sweep worked.", s.Sweep.Longest.Seconds()),
		observe.NewCounter("weir_sweep_work_seconds_total", "Total time that the sweep has worked.",
			s.Sweep.Work.Seconds()),
		observe.NewCounter("weir_events_lost_in_kernel_total",
			"Events lost because the ring buffer in the kernel was full.", s.Lost),
	}, nil
}

// eventMetrics are about the stream of events.
func (o *Observer) eventMetrics() []observe.Metric {
	events := observe.Metric{Name: "weir_events_total", Type: observe.Counter,
		Help: "Events from the engine, by kind and hook."}
	for _, k := range eventKinds {
		for dir, hook := range hooks {
			events.Add(float64(o.hub.CountAt(k, firewall.Direction(dir))), "kind",
				observe.KindName(k), "hook", hook)
		}
	}
	var entries, skipped uint64
	if o.log != nil {
		entries, skipped = o.log.entries.Load(), o.log.skipped.Load()
	}
	return []observe.Metric{events,
		observe.NewCounter("weir_log_entries_total",
			"Packets that rules with log wrote to the journal of systemd.", entries),
		observe.NewCounter("weir_log_skipped_total",
			"Logged packets not written, because of the rate limit or because the journal did "+
				"not accept them.", skipped),
		observe.NewCounter("weir_events_lost_total",
			"Events that a subscriber missed, in the kernel or in its queue.", o.hub.Lost()),
	}
}

// historyMetrics are about the history of the counters.
func (o *Observer) historyMetrics() []observe.Metric {
	rules, pods, left := o.history.series()
	kept := observe.Metric{Name: "weir_history_series", Type: observe.Gauge,
		Help: "Rules and pods whose counts of the last hour are kept."}
	kept.Add(float64(pods), "kind", "pods")
	kept.Add(float64(rules), "kind", "rules")
	return []observe.Metric{kept,
		observe.NewCounter("weir_history_samples_total", "Samples of the counters for the history.",
			o.sampled.taken.Load()),
		observe.NewCounter("weir_history_failures_total",
			"Samples for which counters could not be read.", o.sampled.failed.Load()),
		observe.NewCounter("weir_history_left_out_total",
			"Samples of rules and pods beyond the limit.", left),
		observe.NewCounter("weir_history_seconds_total", "Time that the samples took.",
			time.Duration(o.sampled.nanos.Load()).Seconds()),
	}
}

// ServeScrapes answers scrapes, and nothing else, on the address of the settings, if there is one.
func (o *Observer) ServeScrapes() (stop func() error, err error) {
	if o.config.Settings.Metrics == "" {
		return nil, nil
	}
	served := make(chan error, 1)
	s, err := observe.ServeMetrics(o.config.Settings.Metrics, o.Metrics, served)
	if err != nil {
		return nil, err
	}
	go func() {
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			o.config.Problems.Add("metrics are not served any more: "+err.Error(),
				"restart the agent: systemctl restart weir")
		}
	}()
	return s.Close, nil
}
