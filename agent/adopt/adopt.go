// Package adopt makes states of connections that were open before the rules.
package adopt

import (
	"net/netip"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// Connections makes states of the TCP connections that are open and that the rules would have let
// begin, and returns how many. ask makes an engine that runs these rules.
func Connections(p *program.Program, ask func() (*soft.Engine, error),
	adopt func([]firewall.State) (int, error)) (int, error) {
	sockets, err := nl.TCPSockets(nil)
	if err != nil {
		return 0, err
	}
	conn, err := routes.Open()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	engine, err := ask()
	if err != nil {
		return 0, err
	}
	defer engine.Close()
	var states []firewall.State
	for _, candidates := range Openings(sockets) {
		for _, o := range candidates {
			hook, ok := hookOf(conn, o)
			if !ok {
				continue
			}
			e := engine.Check(&firewall.Input{Hook: hook}, packet.ProtoTCP, o.From, o.To)
			if !e.Verdict.Pass {
				continue
			}
			if s, ok := State(p, e, hook, firewall.State{Proto: packet.ProtoTCP, From: o.From,
				To: o.To}); ok {
				states = append(states, s)
			}
			break
		}
	}
	return adopt(states)
}

// State returns the state that the rules would have made for the first packet of a flow, which they
// let pass; false if none would have been made, and the rules need none.
func State(p *program.Program, e soft.Explanation, hook firewall.Hook, flow firewall.State) (
	firewall.State, bool) {
	index, ok := stateRule(p, e)
	if !ok {
		return flow, false
	}
	r := &p.Rules[index]
	return firewall.State{Proto: flow.Proto, From: flow.From, To: flow.To, Link: hook.Link(),
		Key: r.Key, Rule: r.Number, FlowName: p.Flows[r.Flow]}, true
}

// hookOf returns the hook at which the rules would have evaluated the first packet of a connection:
// at the interface towards the remote end.
func hookOf(conn *nl.Conn, o Opening) (firewall.Hook, bool) {
	remote := o.To
	if o.In {
		remote = o.From
	}
	link := o.Link
	if link == 0 {
		route, err := conn.RouteTo(remote.Addr())
		if err != nil {
			return firewall.Hook{}, false // nowhere to send an answer to
		}
		link = route.Link
	}
	if o.In {
		return firewall.Hook{Dir: firewall.In, Recv: uint32(link)}, true
	}
	return firewall.Hook{Dir: firewall.Out, Xmit: uint32(link)}, true
}

// stateRule returns the index of the rule that would make a state for a packet that passes; false
// if none would.
func stateRule(p *program.Program, e soft.Explanation) (index uint16, ok bool) {
	for _, t := range e.Tries {
		if t.Outcome != soft.Matched && t.Outcome != soft.MatchedDefer {
			continue
		}
		switch p.Rules[t.Slot].State {
		case op.StateKeep, op.StateLimit, op.StateRecord, op.StateSetLimit:
			return t.Slot, true
		}
	}
	return 0, false
}

// Opening is how a connection that is open now may have begun: the first packet that the rules
// would have seen.
type Opening struct {
	In       bool // from outside
	From, To netip.AddrPort
	Link     int // index of the interface that the socket is bound to, or 0
}

// Openings lists the connections of a host that carry or may still carry data, each with the
// directions in which it may have begun, the likely one first. A connection to a port with a
// listener came from outside. Without a listener it was most likely opened from here, but a program
// may also have closed its listener since.
func Openings(sockets []nl.TCPSocket) [][]Opening {
	listeners := map[netip.AddrPort]bool{}
	for _, s := range sockets {
		if s.State == nl.TCPListen {
			listeners[s.Local] = true
		}
	}
	var all [][]Opening
	for _, s := range sockets {
		switch s.State {
		case nl.TCPEstablished, nl.TCPFinWait1, nl.TCPFinWait2, nl.TCPCloseWait, nl.TCPLastAck,
			nl.TCPClosing:
		default: // no data can come any more, or the Opening will be repeated
			continue
		}
		if s.Remote.Addr().IsLoopback() {
			continue
		}
		in := Opening{In: true, From: s.Remote, To: s.Local, Link: s.Link}
		out := Opening{From: s.Local, To: s.Remote, Link: s.Link}
		if listensFor(listeners, s.Local) {
			all = append(all, []Opening{in})
		} else {
			all = append(all, []Opening{out, in})
		}
	}
	return all
}

// listensFor reports whether a listener accepts connections to an address. The IPv6 wildcard
// accepts IPv4 too, unless the socket refuses that; then a listener for IPv4 is there as well, or
// the connection could not have come.
func listensFor(listeners map[netip.AddrPort]bool, at netip.AddrPort) bool {
	for _, a := range []netip.Addr{at.Addr(), netip.IPv6Unspecified(), netip.IPv4Unspecified()} {
		if a.Is4() && at.Addr().Is6() {
			continue
		}
		if listeners[netip.AddrPortFrom(a, at.Port())] {
			return true
		}
	}
	return false
}
