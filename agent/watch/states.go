package watch

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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
	table, err := o.Table()
	if err != nil {
		api.WriteError(w, http.StatusUnprocessableEntity, err)
		return
	}
	all, err := o.states(filter, table.States)
	if err != nil {
		api.WriteError(w, http.StatusUnprocessableEntity, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// an error is that of the connection: no client reads any more
	_ = api.WriteStates(w, table, o.views(all))
}

// engineState is a state and the number of its engine.
type engineState struct {
	firewall.State
	engine int
}

// states returns the live states that a filter picks, the youngest last. There are about as many as
// expected without a filter.
func (o *Observer) states(filter *observe.Filter, expected int) ([]engineState, error) {
	var all []engineState
	if filter.String() == "" { // growing takes several times what the states do
		all = make([]engineState, 0, expected+expected/16)
	}
	for i, from := range o.config.Engine.Readers() {
		for s, err := range from.States() {
			if err != nil {
				return nil, err
			}
			if filter.MatchState(&s, &o.names) {
				all = append(all, engineState{s, i})
			}
		}
	}
	slices.SortFunc(all, func(a, b engineState) int { return cmp.Compare(a.Created, b.Created) })
	return all, nil
}

// views returns what is shown of states, one by one.
func (o *Observer) views(all []engineState) iter.Seq[api.State] {
	now := clock.Now()
	return func(yield func(api.State) bool) {
		for i := range all {
			if !yield(o.view(&all[i].State, all[i].engine, now)) {
				return
			}
		}
	}
}

// view returns what is shown of a state of an engine.
func (o *Observer) view(s *firewall.State, engine int, now time.Duration) api.State {
	v := stateView(*s, now)
	v.Engine = engineNames[engine]
	if s.Link != 0 {
		v.Interface = o.interfaceName(s.Link)
	}
	return v
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
			all = append(all, o.view(&s, i, clock.Now()))
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
