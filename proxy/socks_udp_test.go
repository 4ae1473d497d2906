package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// associate opens an association. It returns the TCP connection that keeps it open, and the proxy's
// UDP address.
func associate(t *testing.T, proxy string) (net.Conn, netip.AddrPort) {
	t.Helper()
	return associateFrom(t, proxy, 0)
}

// associateFrom is associate, and names the port from which datagrams will come.
func associateFrom(t *testing.T, proxy string, port uint16) (net.Conn, netip.AddrPort) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	c.Write(append([]byte("\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00"), byte(port>>8),
		byte(port)))
	answer := make([]byte, 12)
	if _, err := io.ReadFull(c, answer); err != nil || answer[3] != replyOK {
		t.Fatalf("answer %x %v", answer, err)
	}
	addr, _ := netip.AddrFromSlice(answer[6:10])
	return c, netip.AddrPortFrom(addr, uint16(answer[10])<<8|uint16(answer[11]))
}

func udpEcho(t *testing.T) uint16 {
	t.Helper()
	sock, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	go func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := sock.ReadFrom(b)
			if err != nil {
				return
			}
			sock.WriteTo(b[:n], from)
		}
	}()
	return sock.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

func TestUDPAssociate(t *testing.T) {
	s := &Server{}
	proxy := start(t, s, oneHost)
	one, two := udpEcho(t), udpEcho(t)
	control, relay := associate(t, proxy)
	defer control.Close()
	sock, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(relay))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	byName := func(port uint16) []byte {
		return append([]byte("\x00\x00\x00\x03\x09host.test"), byte(port>>8), byte(port))
	}
	byAddr := func(port uint16) []byte {
		return append([]byte("\x00\x00\x00\x01\x7f\x00\x00\x01"), byte(port>>8), byte(port))
	}
	b := make([]byte, maxDatagram)
	for i, size := range []int{0, 1, 1200, 9000, 60000} {
		for _, port := range []uint16{one, two} {
			for _, header := range [][]byte{byName(port), byAddr(port)} {
				payload := bytes.Repeat([]byte{byte(i + 1)}, size)
				sock.Write(append(header, payload...))
				sock.SetReadDeadline(time.Now().Add(5 * time.Minute))
				n, err := sock.Read(b)
				if err != nil {
					t.Fatalf("%d bytes to %d: %v", size, port, err)
				}
				if want := append(byAddr(port), payload...); !bytes.Equal(b[:n], want) {
					t.Errorf("got %d bytes, want %d", n, len(want))
				}
			}
		}
	}
	nstest.Eventually(t, "payloads are counted", func() bool {
		return s.Stats().BytesRelayed == 2*4*(1+1200+9000+60000)
	})
	// Fragments, malformed datagrams and those of other hosts are dropped and counted.
	dropped := s.Stats().DatagramsDropped
	sock.Write([]byte("\x00\x00\x01\x01\x7f\x00\x00\x01\x00\x01x"))
	sock.Write([]byte("\x00\x00"))
	other, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(relay))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.Write(append(byAddr(one), 'x'))
	other.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := other.Read(b); err == nil {
		t.Errorf("another socket got %d bytes", n)
	}
	nstest.Eventually(t, "three are dropped", func() bool {
		return s.Stats().DatagramsDropped-dropped == 3
	})
	// The association ends with its connection.
	control.Close()
	nstest.Eventually(t, "it has ended", func() bool { return s.Stats().Clients == 0 })
}

// TestUDPAssociateNamedPort: an association whose client has named its port belongs to that port,
// even when another port of the client's host sends first.
func TestUDPAssociateNamedPort(t *testing.T) {
	s := &Server{}
	proxy := start(t, s, "")
	one := udpEcho(t)
	sockets := make([]*net.UDPConn, 2)
	for i := range sockets {
		var err error
		sockets[i], err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer sockets[i].Close()
		sockets[i].SetDeadline(time.Now().Add(5 * time.Minute))
	}
	client, other := sockets[0], sockets[1]
	control, relay := associateFrom(t, proxy,
		client.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	defer control.Close()
	datagram := append([]byte("\x00\x00\x00\x01\x7f\x00\x00\x01"), byte(one>>8), byte(one), 'x')
	other.WriteToUDPAddrPort(datagram, relay)
	nstest.Eventually(t, "1 dropped", func() bool { return s.Stats().DatagramsDropped == 1 })
	client.WriteToUDPAddrPort(datagram, relay)
	b := make([]byte, 100)
	if n, err := client.Read(b); err != nil || !bytes.Equal(b[:n], datagram) {
		t.Errorf("the client gets %q, %v", b[:n], err)
	}
}

func TestUDPSessionsAreBounded(t *testing.T) {
	s := &Server{}
	control, relay := associate(t, start(t, s, ""))
	defer control.Close()
	sock, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(relay))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	for i := range maxSessions + 10 {
		sock.Write(fmt.Appendf(nil, "\x00\x00\x00\x01\x7f\x00\x00%c\x27\x0fx", i+1))
		time.Sleep(time.Millisecond)
	}
	nstest.Eventually(t, "10 dropped", func() bool { return s.Stats().DatagramsDropped == 10 })
}

// TestWaitingDatagramsAreBounded: what waits for names that are not resolved takes little memory,
// and a client that has its share leaves space for others. It is given back with the dial.
func TestWaitingDatagramsAreBounded(t *testing.T) {
	gone := make(chan struct{})
	s := &Server{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		<-gone
		return nil, ctx.Err()
	}}
	s.prepare() // the test looks at what Serve makes
	control, relay := associate(t, start(t, s, ""))
	defer control.Close()
	sock, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(relay))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	const size = 60000
	used := func() int {
		s.waiting.mu.Lock()
		defer s.waiting.mu.Unlock()
		return s.waiting.used
	}
	payload := make([]byte, size)
	fits := uint64(maxWaitingBytes / 4 / size)
	for i := range 2 * fits {
		head := fmt.Appendf(nil, "\x00\x00\x00\x01\x7f\x00\x00%c\x27\x0f", i%maxSessions+1)
		if _, err := sock.Write(append(head, payload...)); err != nil {
			t.Fatal(err)
		}
		nstest.Eventually(t, "the datagram waits or is dropped", func() bool {
			return uint64(used()/size)+s.Stats().DatagramsDropped == i+1
		})
	}
	if n := s.Stats().DatagramsDropped; n != fits {
		t.Errorf("%d datagrams are dropped, %d bytes wait", n, used())
	}
	if !s.waiting.acquire(netip.MustParseAddr("192.0.2.1"), size) {
		t.Error("another client has no space")
	}
	s.waiting.release(netip.MustParseAddr("192.0.2.1"), size)
	control.Close()
	close(gone)
	nstest.Eventually(t, "nothing waits any more", func() bool { return used() == 0 })
}
