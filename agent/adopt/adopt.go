// Package adopt makes states for connections that were open before the rules were loaded.
package adopt

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

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
	var unknown error // the first connection that could not be looked at
	for _, candidates := range Openings(sockets) {
		for _, o := range candidates {
			hook, ok, err := hookOf(conn.RouteTo, o)
			if err != nil && unknown == nil {
				unknown = fmt.Errorf("adopt %s -> %s: %w", o.From, o.To, err)
			}
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
	count, err := adopt(states)
	return count, errors.Join(unknown, err)
}

// State returns the state that the rules would have made for the first packet of a flow, which they
// let pass. It returns false if none would have been made, and the rules need none.
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
// at the interface towards the remote end. It returns false for one to which nothing can be sent,
// which is lost whatever the rules say.
func hookOf(routeTo func(netip.Addr) (nl.Route, error), o Opening) (firewall.Hook, bool, error) {
	remote := o.To
	if o.In {
		remote = o.From
	}
	link := o.Link
	if link == 0 {
		route, err := routeTo(remote.Addr())
		if unreachable(err) {
			return firewall.Hook{}, false, nil
		}
		if err != nil {
			return firewall.Hook{}, false, err
		}
		link = route.Link
	}
	if o.In {
		return firewall.Hook{Dir: firewall.In, Recv: uint32(link)}, true, nil
	}
	return firewall.Hook{Dir: firewall.Out, Xmit: uint32(link)}, true, nil
}

// unreachable reports whether an error is the kernel's way to say that there is no route: none, or
// one of type unreachable, prohibit or blackhole.
func unreachable(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL)
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

// Opening is the first packet of an open connection, as the rules would have seen it.
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
