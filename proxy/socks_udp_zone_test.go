package proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// linkLocalPair is a host with the proxy and a client, each with a link-local address. The names of
// the interfaces are like no other: net remembers their indexes, whatever the namespace.
type linkLocalPair struct {
	host, client *nstest.Node
	s            *Server
}

// associate opens an association as detect does, in the namespace of the host. It returns the TCP
// connection that keeps it open, and the proxy's port.
func (p *linkLocalPair) associate(t *testing.T, named uint16) (net.Conn, uint16) {
	t.Helper()
	l, err := p.host.Listen("tcp", "[fe80::1%zone0]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := netip.AddrPortFrom(netip.MustParseAddr("fe80::1%zone1"),
		l.Addr().(*net.TCPAddr).AddrPort().Port())
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("fe80::2"), Zone: "zone1"}}
	var control net.Conn
	if err := p.client.Do(func() (err error) {
		control, err = from.Dial("tcp", to.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	c := newClient(p.s, nil)
	p.s.wait.Add(1)
	p.s.stats.clients.Add(1)
	if err := p.host.Do(func() (err error) {
		if c.conn, err = l.Accept(); err == nil {
			t.Cleanup(func() { c.Close() })
			p.s.associate(c, &request{command: cmdAssociate, host: "fe80::2", port: named})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	control.SetDeadline(time.Now().Add(5 * time.Minute))
	answer := make([]byte, 4+16+2)
	if _, err := io.ReadFull(control, answer); err != nil || answer[1] != replyOK ||
		answer[3] != atypV6 {
		t.Fatalf("answer %x, %v", answer, err)
	}
	return control, uint16(answer[20])<<8 | uint16(answer[21])
}

// TestUDPAssociateLinkLocal: a client with a link-local address has its datagrams relayed, whether
// or not it names its port.
func TestUDPAssociateLinkLocal(t *testing.T) {
	lab := nstest.New(t)
	p := &linkLocalPair{host: lab.Node("host"), client: lab.Node("client"), s: &Server{}}
	lab.Join(p.host, "zone0", "fe80::1/64", p.client, "zone1", "fe80::2/64")
	p.s.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	p.s.prepare()
	port := udpEcho(t)
	datagram := append([]byte("\x00\x00\x00\x01\x7f\x00\x00\x01"), byte(port>>8), byte(port), 'x')
	for _, names := range []bool{false, true} {
		sock, err := p.client.ListenPacket("udp6", "[fe80::2%zone1]:0")
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
		named := uint16(0)
		if names {
			named = sock.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		}
		control, relay := p.associate(t, named)
		sock.SetDeadline(time.Now().Add(5 * time.Minute))
		if _, err := sock.WriteTo(datagram, &net.UDPAddr{IP: net.ParseIP("fe80::1"),
			Zone: "zone1", Port: int(relay)}); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		if n, _, err := sock.ReadFrom(b); err != nil || !bytes.Equal(b[:n], datagram) {
			t.Errorf("port named: %v: the client gets %q, %v", names, b[:n], err)
		}
		control.Close()
	}
}

// TestUDPAssociateOtherLink: a host of another link with the client's link-local address is not the
// client.
func TestUDPAssociateOtherLink(t *testing.T) {
	a := &association{peer: netip.MustParseAddr("fe80::2"), zone: 3}
	d := &received{from: netip.MustParseAddrPort("[fe80::2]:4000"), zone: 4}
	if a.fromClient(d) {
		t.Error("it is")
	}
	d.zone = 3
	if !a.fromClient(d) || a.client != d.from {
		t.Errorf("the client is not: %v", a.client)
	}
}
