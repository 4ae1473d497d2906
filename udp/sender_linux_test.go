package udp

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// TestOpenSender: what senders send comes from the address of the first socket, which receives all
// that is sent there, from any port. A socket that does not share the address cannot bind it.
func TestOpenSender(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		ip := netip.MustParseAddr("127.0.0.1")
		if network == "udp6" {
			ip = netip.IPv6Loopback()
		}
		for _, at := range []netip.Addr{ip, ip.Prev()} {
			if at == ip.Prev() { // the wildcard
				at = netip.IPv4Unspecified()
				if network == "udp6" {
					at = netip.IPv6Unspecified()
				}
			}
			c, err := Listen(network, netip.AddrPortFrom(at, 0), Config{ReadBuffer: 4 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			to := netip.AddrPortFrom(ip, c.LocalAddrPort().Port())
			var senders []*Conn
			for range 5 {
				s, err := c.OpenSender(Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				senders = append(senders, s)
				checkSenders(t, network, c, to, senders)
			}
			for _, s := range senders { // in any order
				s.Close()
				checkSenders(t, network, c, to, nil)
			}
			if other, err := Listen(network, to, Config{}); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another socket at the address: %v", err)
				other.Close()
			}
		}
	}
}

func checkSenders(t *testing.T, network string, c *Conn, to netip.AddrPort, senders []*Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	buf := [][]byte{make([]byte, 100)}
	for i := range byte(40) {
		from, err := net.Dial(network, to.String())
		if err != nil {
			t.Fatal(err)
		}
		from.Write([]byte{i})
		got := []Message{{Buffers: buf}}
		if n, err := c.ReadBatch(got); n != 1 || err != nil || got[0].Payload()[0] != i {
			t.Fatalf("datagram %d: %d, %v", i, n, err)
		}
		for _, s := range senders {
			m := []Message{{Buffers: [][]byte{{i}}, Addr: got[0].Addr}}
			if n, err := s.WriteBatch(m); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			from.SetReadDeadline(time.Now().Add(5 * time.Minute))
			if n, err := from.Read(buf[0]); n != 1 || err != nil { // only from that source
				t.Fatal(n, err)
			}
		}
		from.Close()
	}
}
