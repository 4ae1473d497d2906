package watch

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

// ServeTop answers who talks and who is refused. Rates are since the last request, at least half a
// second ago.
func (o *Observer) ServeTop(w http.ResponseWriter, r *http.Request) {
	rows := 20
	if text := r.URL.Query().Get("n"); text != "" {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > topPairs {
			api.WriteError(w, http.StatusBadRequest,
				fmt.Errorf("n %q is not between 1 and %d", text, topPairs))
			return
		}
		rows = v
	}
	api.WriteAnswer(w, func() (api.Top, error) { return o.topView(rows) })
}

// ageKey identifies a group of states.
type ageKey struct{ proto, phase string }

// topView looks at all states once.
func (o *Observer) topView(rows int) (api.Top, error) {
	stats, err := o.config.Engine.Stats()
	if err != nil {
		return api.Top{}, err
	}
	now, engineNow := time.Now(), clock.Now()
	ages := map[ageKey][]int{}
	var walk error
	states := func(yield func(firewall.State) bool) {
		for s, err := range o.config.Engine.States() {
			if err != nil {
				walk = err
				return
			}
			addAge(ages, &s, engineNow)
			if !yield(s) {
				return
			}
		}
	}
	o.mu.Lock()
	talkers := o.top.Talkers(states, now, rows)
	refused := o.top.Refused(rows)
	all, others := o.top.Total()
	o.mu.Unlock()
	if walk != nil {
		return api.Top{}, walk
	}
	a := api.Top{
		Version: api.Version, Time: now, Since: o.began, States: stats.States,
		StatesMax: stats.MaxStates, HalfOpen: stats.HalfOpen,
		Events: o.eventCounts(), Lost: o.hub.Lost(), Refused: api.Count(all),
		Others:   api.Count(others),
		Refusals: []api.Refusals{}, Talkers: []api.Talker{}, Ages: []api.Age{},
	}
	mine := o.config.Links.IsMe
	for _, r := range refused {
		a.Refusals = append(a.Refusals, api.Refusals{
			Proto: r.Proto.String(), Src: addrText(r.Src), SrcName: o.podName(r.Src),
			Dst: addrText(r.Dst.Addr()), DstName: o.podName(r.Dst.Addr()),
			SrcMine: mine(r.Src), DstMine: mine(r.Dst.Addr()),
			Port: r.Dst.Port(), Rule: r.Rule, Reason: r.Reason.String(), Packets: r.Packets,
			Bytes: r.Bytes, Last: r.Last,
		})
	}
	for _, t := range talkers {
		a.Talkers = append(a.Talkers, api.Talker{
			Proto: t.Proto.String(), Src: addrText(t.Src), SrcName: o.podName(t.Src),
			Dst: addrText(t.Dst.Addr()), DstName: o.podName(t.Dst.Addr()),
			SrcMine: mine(t.Src), DstMine: mine(t.Dst.Addr()),
			Port: t.Dst.Port(), States: t.States, Packets: t.Packets, Bytes: t.Bytes, Rate: t.Rate,
		})
	}
	for k, counts := range ages {
		a.Ages = append(a.Ages, api.Age{Proto: k.proto, Phase: k.phase, Counts: counts})
	}
	slices.SortFunc(a.Ages, func(a, b api.Age) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Phase, b.Phase))
	})
	return a, nil
}

func addAge(ages map[ageKey][]int, s *firewall.State, now time.Duration) {
	k := ageKey{s.Proto.String(), s.Phase.String()}
	if ages[k] == nil {
		ages[k] = make([]int, len(api.AgeBounds)+1)
	}
	at := 0
	for at < len(api.AgeBounds) && (now-s.Created).Seconds() >= float64(api.AgeBounds[at]) {
		at++
	}
	ages[k][at]++
}

// eventKinds are all kinds of events.
var eventKinds = [...]firewall.EventKind{firewall.EventStart, firewall.EventEnd, firewall.EventDrop,
	firewall.EventLog, firewall.EventRefuse}

func (o *Observer) eventCounts() map[string]uint64 {
	counts := map[string]uint64{}
	for _, k := range eventKinds {
		counts[observe.KindName(k)] = o.hub.Count(k)
	}
	return counts
}

// podName is the name of a pod. Tables do not count here: a row is about one address.
func (o *Observer) podName(a netip.Addr) string { return o.addresses.Load().pods[a] }

// addrText is "" for no address: a packet that was refused before its addresses were read.
func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
