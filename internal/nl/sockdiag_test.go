package nl_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

func TestTCPSocketsOfANamespace(t *testing.T) {
	lab := nstest.New(t)
	a, b := lab.Node("a"), lab.Node("b")
	lab.Join(a, "eth0", "10.0.0.1/24 fd00::1/64", b, "eth0", "10.0.0.2/24 fd00::2/64")
	for _, c := range []struct{ listen, dial string }{
		{"10.0.0.2:80", "10.0.0.2:80"}, {"[fd00::2]:80", "[fd00::2]:80"},
		{"[::]:81", "10.0.0.2:81"},
	} {
		l, err := b.Listen("tcp", c.listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := a.DialContext(context.Background(), "tcp", c.dial)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// to the other end it is established with the last packet of the handshake
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		from := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		to := netip.MustParseAddrPort(c.dial)
		for _, side := range []struct {
			node          *nstest.Node
			local, remote netip.AddrPort
		}{{a, from, to}, {b, to, from}} {
			sockets, err := nl.TCPSockets(side.node.NS())
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, s := range sockets {
				if s == (nl.TCPSocket{Local: side.local, Remote: side.remote,
					State: nl.TCPEstablished}) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%s: %v -> %v found %d times in %v", side.node, side.local, side.remote,
					found, sockets)
			}
		}
		if !listens(t, b, netip.MustParseAddrPort(c.listen)) {
			t.Errorf("%s: no listener on %s", b, c.listen)
		}
	}
}

func listens(t *testing.T, n *nstest.Node, at netip.AddrPort) bool {
	t.Helper()
	sockets, err := nl.TCPSockets(n.NS())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		if s.State == nl.TCPListen && s.Local == at {
			return true
		}
	}
	return false
}
