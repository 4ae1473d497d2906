package agent

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// adopt makes states of the TCP connections that are open and that the rules would have let begin,
// and returns how many.
func (n *Node) adopt(p *rule.Program, set *rule.Ruleset) (int, error) {
	sockets, err := nl.TCPSockets(nil)
	if err != nil {
		return 0, err
	}
	conn, err := openRoutes()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	ask, err := n.questions(p, set, n.links.interfaces())
	if err != nil {
		return 0, err
	}
	defer ask.Close()
	var states []firewall.State
	for _, candidates := range openings(sockets) {
		for _, o := range candidates {
			hook, ok := hookOf(conn, o)
			if !ok {
				continue
			}
			e := ask.Check(&firewall.Input{Hook: hook}, packet.ProtoTCP, o.from, o.to)
			if !e.Verdict.Pass {
				continue
			}
			if index, ok := stateRule(p, e); ok {
				states = append(states, firewall.State{Proto: packet.ProtoTCP, From: o.from,
					To:   o.to,
					Link: hook.Link(), Key: p.Rules[index].Key,
					Rule: p.Rules[index].Number, FlowName: p.Flows[p.Rules[index].Flow]})
			}
			break
		}
	}
	return n.engine.Adopt(states)
}

// hookOf returns the hook at which the rules would have evaluated the first packet of a connection:
// at the interface towards the remote end.
func hookOf(conn *nl.Conn, o opening) (firewall.Hook, bool) {
	remote := o.to
	if o.in {
		remote = o.from
	}
	link := o.link
	if link == 0 {
		route, err := conn.RouteTo(remote.Addr())
		if err != nil {
			return firewall.Hook{}, false // nowhere to send an answer to
		}
		link = route.Link
	}
	if o.in {
		return firewall.Hook{Dir: firewall.In, Recv: uint32(link)}, true
	}
	return firewall.Hook{Dir: firewall.Out, Xmit: uint32(link)}, true
}

// maker returns the index of the rule that would make a state for a packet that passes; false if
// none would, and the rules need none.
func stateRule(p *rule.Program, e soft.Explanation) (index uint16, ok bool) {
	for _, t := range e.Tries {
		if t.Outcome != soft.Matched && t.Outcome != soft.MatchedDefer {
			continue
		}
		switch p.Rules[t.Slot].State {
		case rule.StateKeep, rule.StateLimit, rule.StateRecord, rule.StateSetLimit:
			return t.Slot, true
		}
	}
	return 0, false
}

// opening is how a connection that is open now may have begun: the first packet that the rules
// would have seen.
type opening struct {
	in       bool // from outside
	from, to netip.AddrPort
	link     int // index of the interface that the socket is bound to, or 0
}

// openings lists the connections of a host that carry or may still carry data, each with the
// directions in which it may have begun, the likely one first. A connection to a port with a
// listener came from outside. Without a listener it was most likely opened from here, but a program
// may also have closed its listener since.
func openings(sockets []nl.TCPSocket) [][]opening {
	listeners := map[netip.AddrPort]bool{}
	for _, s := range sockets {
		if s.State == nl.TCPListen {
			listeners[s.Local] = true
		}
	}
	var all [][]opening
	for _, s := range sockets {
		switch s.State {
		case nl.TCPEstablished, nl.TCPFinWait1, nl.TCPFinWait2, nl.TCPCloseWait, nl.TCPLastAck,
			nl.TCPClosing:
		default: // no data can come any more, or the opening will be repeated
			continue
		}
		if s.Remote.Addr().IsLoopback() {
			continue
		}
		in := opening{in: true, from: s.Remote, to: s.Local, link: s.Link}
		out := opening{from: s.Local, to: s.Remote, link: s.Link}
		if listensFor(listeners, s.Local) {
			all = append(all, []opening{in})
		} else {
			all = append(all, []opening{out, in})
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
