package server

import (
	"net"
	"net/netip"
	"testing"
)

// from is a connection from an address, which notes its end.
type from struct {
	net.Conn
	addr   string
	closed bool
}

func (f *from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr))
}

func (f *from) Close() error {
	f.closed = true
	return nil
}

// TestHandshakesOfOneAddress: one who opens connections at any rate keeps those of other addresses
// not out, also if it has all addresses of a network of IPv6.
func TestHandshakesOfOneAddress(t *testing.T) {
	for _, flood := range [][]string{{"192.0.2.66:1"}, {"[2001:db8::1]:1", "[2001:db8::2]:1"}} {
		s := &Server{}
		host, second := &from{addr: "192.0.2.7:1"}, &from{addr: "[2001:db8:0:1::1]:1"}
		s.begin(host)
		var flooded []*from
		for i := range 3 * maxHandshakes {
			if i == maxHandshakes {
				s.begin(second)
			}
			one := &from{addr: flood[i%len(flood)]}
			flooded = append(flooded, one)
			s.begin(one)
		}
		if host.closed || second.closed {
			t.Errorf("%v: a host is closed: %v, %v", flood, host.closed, second.closed)
		}
		if len(s.handshakes) != maxHandshakes {
			t.Errorf("%v: %d connections", flood, len(s.handshakes))
		}
		if !flooded[0].closed || flooded[len(flooded)-1].closed {
			t.Errorf("%v: not the oldest one ends", flood)
		}
		s.proved(host)
		s.proved(host)
		if len(s.handshakes) != maxHandshakes-1 {
			t.Errorf("%v: %d connections without the host", flood, len(s.handshakes))
		}
	}
}
