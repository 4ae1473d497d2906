package watch

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
)

// counts are the counters of a moment.
type counts struct {
	decisions map[firewall.Decision]firewall.Count
	rules     []firewall.RuleCounter
	pods      []api.Pod
}

type podKey struct{ container, ifName string }

type podCount struct{ bytes, packets, drops [2]uint64 }

type ruleLabel struct {
	number uint16
	text   string
}

// history is what was counted in each interval of the last hour. It takes at most 5 MiB.
type history struct {
	// text returns the text of the rule at an index, if it has that number
	text func(index int, number uint16) string

	mu      sync.Mutex                 // its place in the lock order: agent/doc.go
	begun   bool                       // guarded by mu; there are counters to compare with
	number  uint64                     // guarded by mu; of the next sample
	last    time.Duration              // guarded by mu; when the counters before were read
	at      [sampleCount]time.Duration // guarded by mu; engine's clock
	seconds [sampleCount]float32       // guarded by mu
	traffic columns                    // guarded by mu
	// guarded by mu; by reason: there are fewer of them than maxSeries
	dropped group[firewall.Reason, firewall.Reason]
	rules   group[uint64, ruleLabel] // guarded by mu
	pods    group[podKey, string]    // guarded by mu

	decisionsBefore map[firewall.Decision]firewall.Count // guarded by mu
	rulesBefore     map[uint64]firewall.Count            // guarded by mu
	podsBefore      map[podKey]podCount                  // guarded by mu
}

// The columns of traffic.
const (
	bytesIn = iota
	bytesOut
	packetsIn
	packetsOut
	packetsDropped
	trafficColumns
)

func newHistory(text func(index int, number uint16) string) *history {
	return &history{text: text, traffic: newColumns(trafficColumns),
		dropped: newGroup[firewall.Reason, firewall.Reason](1),
		rules:   newGroup[uint64, ruleLabel](2), pods: newGroup[podKey, string](4)}
}

// more returns the growth of a counter. One that was set to 0 has begun again.
func more(now, before uint64) float32 {
	if now < before {
		return float32(now)
	}
	return float32(now - before)
}

// take compares the counters with those before. now is the time of the engine's clock.
func (h *history) take(now time.Duration, c counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun && now <= h.last {
		return
	}
	n := h.number
	h.dropped.begin(n)
	h.rules.begin(n)
	h.pods.begin(n)
	h.takeDecisionsLocked(n, c.decisions)
	h.takeRulesLocked(n, c.rules)
	h.takePodsLocked(n, c.pods)
	if h.begun {
		h.at[n%sampleCount], h.seconds[n%sampleCount] = now, float32((now - h.last).Seconds())
		h.number++
	}
	h.begun, h.last = true, now
}

func (h *history) takeDecisionsLocked(n uint64, now map[firewall.Decision]firewall.Count) {
	var sums [trafficColumns]float32
	for d, c := range now {
		before := h.decisionsBefore[d]
		packets, bytes := more(c.Packets, before.Packets), more(c.Bytes, before.Bytes)
		switch {
		case !h.begun:
		case !d.Pass:
			sums[packetsDropped] += packets
			h.dropped.count(n, d.Reason, []float32{packets},
				func() firewall.Reason { return d.Reason })
		case d.Dir == firewall.In:
			sums[bytesIn], sums[packetsIn] = sums[bytesIn]+bytes, sums[packetsIn]+packets
		default:
			sums[bytesOut], sums[packetsOut] = sums[bytesOut]+bytes, sums[packetsOut]+packets
		}
	}
	h.traffic.put(n, sums[:])
	h.decisionsBefore = now
}

func (h *history) takeRulesLocked(n uint64, now []firewall.RuleCounter) {
	before := h.rulesBefore
	h.rulesBefore = make(map[uint64]firewall.Count, len(now))
	for index, r := range now {
		was := before[r.Key]
		h.rulesBefore[r.Key] = firewall.Count{Packets: r.Packets, Bytes: r.Bytes}
		if h.begun {
			h.rules.count(n, r.Key, []float32{more(r.Packets, was.Packets),
				more(r.Bytes, was.Bytes)}, func() ruleLabel {
				return ruleLabel{r.Number, h.text(index, r.Number)}
			})
		}
	}
}

func (h *history) takePodsLocked(n uint64, now []api.Pod) {
	before := h.podsBefore
	h.podsBefore = make(map[podKey]podCount, len(now))
	for i := range now {
		p := &now[i]
		key := podKey{p.Container, p.IfName}
		was := before[key]
		h.podsBefore[key] = podCount{p.Bytes, p.Packets, p.Drops}
		if h.begun {
			h.pods.count(n, key, []float32{more(p.Bytes[0], was.bytes[0]),
				more(p.Bytes[1], was.bytes[1]),
				more(p.Packets[0], was.packets[0]) + more(p.Packets[1], was.packets[1]),
				more(p.Drops[0], was.drops[0]) + more(p.Drops[1], was.drops[1])},
				func() string { return p.Name })
		}
	}
}

// series returns how many series there are.
func (h *history) series() (rules, pods int, left uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rules.of), len(h.pods.of), h.rules.left + h.pods.left
}

// view shows the samples from a number on.
func (h *history) view(since uint64, wall func(time.Duration) time.Time) api.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, end := since, h.number
	if oldest := end - min(end, sampleCount); first < oldest {
		first = oldest
	}
	first = min(first, end)
	a := api.History{Version: api.Version, First: first, Times: []float64{},
		Seconds: []float32{}, Dropped: []api.ReasonHistory{}, Rules: []api.RuleHistory{},
		Pods: []api.PodHistory{}}
	for n := first; n < end; n++ {
		at := wall(h.at[n%sampleCount])
		a.Times = append(a.Times, float64(at.UnixMilli())/1e3)
		a.Seconds = append(a.Seconds, h.seconds[n%sampleCount])
	}
	t := h.traffic.from(first, end)
	a.Traffic = api.Traffic{BytesIn: t[bytesIn], BytesOut: t[bytesOut],
		PacketsIn: t[packetsIn], PacketsOut: t[packetsOut], Dropped: t[packetsDropped]}
	a.Others = api.Others{RulePackets: h.rules.others.from(first, end)[0]}
	others := h.pods.others.from(first, end)
	a.Others.PodBytes = others[0]
	for i := range a.Others.PodBytes {
		a.Others.PodBytes[i] += others[1][i]
	}
	for reason, s := range h.dropped.of {
		if v := s.values.from(first, end); !v.isZero() {
			a.Dropped = append(a.Dropped,
				api.ReasonHistory{Reason: reason.String(), Packets: v[0]})
		}
	}
	for _, s := range h.rules.of {
		if v := s.values.from(first, end); !v.isZero() {
			a.Rules = append(a.Rules, api.RuleHistory{Number: s.label.number, Text: s.label.text,
				Packets: v[0], Bytes: v[1]})
		}
	}
	for k, s := range h.pods.of {
		if v := s.values.from(first, end); !v.isZero() {
			a.Pods = append(a.Pods, api.PodHistory{Container: k.container, IfName: k.ifName,
				Name: s.label, BytesIn: v[0], BytesOut: v[1], Packets: v[2], Dropped: v[3]})
		}
	}
	slices.SortFunc(a.Dropped, func(a, b api.ReasonHistory) int {
		return cmp.Compare(a.Reason, b.Reason)
	})
	slices.SortFunc(a.Rules, func(a, b api.RuleHistory) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Text, b.Text))
	})
	slices.SortFunc(a.Pods, func(a, b api.PodHistory) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.IfName, b.IfName))
	})
	return a
}

// ServeHistory answers what was counted over time: all samples, or with since=NUMBER those from
// that number on.
func (o *Observer) ServeHistory(w http.ResponseWriter, r *http.Request) {
	since := uint64(0)
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			api.WriteError(w, http.StatusBadRequest,
				fmt.Errorf("since %q is not the number of a sample", text))
			return
		}
	}
	api.WriteAnswer(w, func() (api.History, error) {
		a := o.history.view(since, o.clock.wall)
		a.Began = o.began
		return a, nil
	})
}
