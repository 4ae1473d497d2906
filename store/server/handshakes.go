package server

import (
	"maps"
	"net"
	"net/netip"
	"slices"
)

// begin notes a connection that has not proved who it is. When there are too many, one ends, the
// oldest of the address that has most of them. One who opens connections, silent or not and at any
// rate, keeps no other address out.
func (s *Server) begin(raw net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.handshakes) >= maxHandshakes {
		ends := oldestOfMost(s.handshakes)
		s.handshakes[ends].Close()
		s.handshakes = slices.Delete(s.handshakes, ends, ends+1)
		s.Counters.Refused.Add(1)
	}
	s.handshakes = append(s.handshakes, raw)
	s.serving.Add(1)
	return true
}

// oldestOfMost returns which of the connections, in order of arrival, is the first one of the
// address that has most of them.
func oldestOfMost(conns []net.Conn) (first int) {
	counts := map[netip.Prefix]int{}
	for _, c := range conns {
		counts[sourceOf(c)]++
	}
	most := slices.Max(slices.Collect(maps.Values(counts)))
	return slices.IndexFunc(conns, func(c net.Conn) bool { return counts[sourceOf(c)] == most })
}

// sourceOf returns where a connection comes from: an address, or a network of IPv6, in which one
// host can have any number of addresses.
func sourceOf(c net.Conn) netip.Prefix {
	t, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	a := t.AddrPort().Addr().Unmap().WithZone("")
	of, _ := a.Prefix(min(a.BitLen(), 64)) // of 32 or 128 bits
	return of
}

// proved forgets that a connection has not proved who it is.
func (s *Server) proved(raw net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.handshakes {
		if c == raw {
			s.handshakes = slices.Delete(s.handshakes, i, i+1)
			return
		}
	}
}
