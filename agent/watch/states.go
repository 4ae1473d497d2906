package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
)

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
			all = append(all, state{s, [...]string{"", "tunnel"}[i]})
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
