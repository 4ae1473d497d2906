package watch

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/packet"
)

// engineNames are the names of the engines, in the order of Readers.
var engineNames = [...]string{"", "tunnel"}

// ServeStates answers the live states that a filter picks.
func (o *Observer) ServeStates(w http.ResponseWriter, r *http.Request) {
	filter, err := observe.ParseStateFilter(r.URL.Query().Get("filter"), o.config.Rules.Names())
	if err != nil {
		api.WriteError(w, http.StatusBadRequest, err)
		return
	}
	api.WriteAnswer(w, func() (api.States, error) { return o.states(filter) })
}

// states lists the live states that a filter picks, the youngest last.
func (o *Observer) states(filter *observe.Filter) (api.States, error) {
	a := api.States{Version: api.Version, States: []api.State{}}
	table, err := o.Table()
	if err != nil {
		return a, err
	}
	a.Table = table
	type state struct {
		firewall.State
		engine string
	}
	var all []state
	for i, from := range o.config.Engine.Readers() {
		for s, err := range from.States() {
			if err != nil {
				return a, err
			}
			if filter.MatchState(&s, &o.names) {
				all = append(all, state{s, engineNames[i]})
			}
		}
	}
	slices.SortFunc(all, func(a, b state) int { return int(a.Created - b.Created) })
	now := clock.Now()
	for _, s := range all {
		v := stateView(s.State, now)
		v.Engine = s.engine
		if s.Link != 0 {
			v.Interface = o.interfaceName(s.Link)
		}
		a.States = append(a.States, v)
	}
	return a, nil
}

// stateKey is a state among all that live: a later one of the same flow is another.
type stateKey struct {
	proto    packet.Proto
	from, to netip.AddrPort
	link     uint32
	query    uint8
	created  time.Duration
}

func keyOf(s *firewall.State) stateKey {
	return stateKey{s.Proto, s.From, s.To, s.Link, s.Query, s.Created}
}

// DeleteStates ends the states that a filter picks. They are found first, since an engine may hold
// its workers while it deletes, and tables are looked up under a lock of their own.
func (o *Observer) DeleteStates(ctx context.Context, q api.DeleteStates) (api.Deleted, error) {
	a := api.Deleted{Version: api.Version}
	filter, err := observe.ParseStateFilter(q.Filter, o.config.Rules.Names())
	if err != nil {
		return a, err
	}
	if filter.String() == "" {
		return a, &api.Error{Message: "the filter is missing: name the states to delete",
			Advice: "weir fw states delete from 192.0.2.7; all of them: weir fw states delete ip"}
	}
	picked := map[stateKey]bool{}
	for s, err := range o.config.Engine.States() {
		if err != nil {
			return a, err
		}
		if filter.MatchState(&s, &o.names) {
			picked[keyOf(&s)] = true
		}
	}
	if len(picked) == 0 {
		return a, nil
	}
	a.Deleted, err = o.config.Engine.DeleteStates(func(s firewall.State) bool {
		return picked[keyOf(&s)]
	})
	o.config.Log.Info("states deleted", "filter", filter.String(), "states", a.Deleted,
		"uid", api.ClientUID(ctx))
	return a, err
}

// mostStatesOf bounds how many states of one flow are shown: there is one in each engine, and those
// of other flows that use its addresses on the wire.
const mostStatesOf = 16

// statesOf lists the states of the flow between two ends, in either direction, as rules see it or
// as it is on the wire. Ends without a port match any.
func (o *Observer) statesOf(proto packet.Proto, src, dst netip.AddrPort) ([]api.State, error) {
	all := []api.State{}
	for i, from := range o.config.Engine.Readers() {
		for s, err := range from.States() {
			if err != nil {
				return all, err
			}
			if s.Proto != proto || !isBetween(s.From, s.To, src, dst) &&
				!isBetween(s.WireFrom, s.WireTo, src, dst) || len(all) == mostStatesOf {
				continue
			}
			v := stateView(s, clock.Now())
			v.Engine = engineNames[i]
			if s.Link != 0 {
				v.Interface = o.interfaceName(s.Link)
			}
			all = append(all, v)
		}
	}
	return all, nil
}

// isBetween reports whether from and to are the two ends a and b, in either order.
func isBetween(from, to, a, b netip.AddrPort) bool {
	is := func(have, want netip.AddrPort) bool {
		return have.Addr() == want.Addr() && (want.Port() == 0 || have.Port() == want.Port())
	}
	return from.IsValid() && (is(from, a) && is(to, b) || is(from, b) && is(to, a))
}

// interfaceName returns the name of an interface, or its index if it is gone.
func (o *Observer) interfaceName(index uint32) string {
	for _, i := range o.config.Links.Interfaces() {
		if i.Index == index {
			return i.Name
		}
	}
	return fmt.Sprint(index)
}

func stateView(s firewall.State, now time.Duration) api.State {
	v := api.State{
		Proto: s.Proto.String(), From: s.From.String(), To: s.To.String(),
		ICMPType: s.Query,
		Flow:     s.FlowName, Phase: s.Phase.String(), Rule: s.Rule,
		AgeSeconds:  clock.Seconds(now - s.Created),
		LeftSeconds: max(0, clock.Seconds(s.Deadline-now)),
		Packets:     s.Packets, Bytes: s.Bytes,
	}
	if s.WireFrom.IsValid() {
		v.WireFrom, v.WireTo = s.WireFrom.String(), s.WireTo.String()
	}
	return v
}
