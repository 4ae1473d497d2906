package agent

import (
	"net/netip"

	"github.com/weirnet/weir/internal/nl"
)

// opening is how a connection that is open now may have begun: the first packet that the rules would have seen.
type opening struct {
	in       bool // from outside
	from, to netip.AddrPort
}

// openings lists the connections of a host that carry or may carry data, each with the ways in which it may have begun,
// the likely one first. A connection to a port that somebody listens on came from outside. Without a listener it was most
// likely opened from here, but a program may also have closed its listener since.
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
		case nl.TCPEstablished, nl.TCPFinWait1, nl.TCPFinWait2, nl.TCPCloseWait, nl.TCPLastAck, nl.TCPClosing:
		default: // no data can come any more, or the opening will be repeated
			continue
		}
		if s.Remote.Addr().IsLoopback() {
			continue
		}
		in := opening{in: true, from: s.Remote, to: s.Local}
		out := opening{from: s.Local, to: s.Remote}
		if listensFor(listeners, s.Local) {
			all = append(all, []opening{in})
		} else {
			all = append(all, []opening{out, in})
		}
	}
	return all
}

// listensFor says whether a listener accepts connections to an address. The IPv6 wildcard accepts IPv4 too, unless the
// socket refuses that; then a listener for IPv4 is there as well, or the connection could not have come.
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
