package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// engineNames are the names of the engines, in the order of Readers.
var engineNames = [...]string{"", "tunnel"}

// States lists the live states, the youngest last.
func (o *Observer) States() (api.States, error) {
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
			all = append(all, state{s, engineNames[i]})
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

// mostStatesOf bounds how many states of one flow are shown: there is one in each engine, and those
// of other flows that use its addresses on the wire.
const mostStatesOf = 16

// StatesOf lists the states of the flow between two ends, in either direction, as rules see it or
// as it is on the wire. Ends without a port match any.
func (o *Observer) StatesOf(proto packet.Proto, src, dst netip.AddrPort) ([]api.State, error) {
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
