package overlay

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestForgedInitiations: an attacker on the path sends a message with a part of each initiation
// before that comes. Sessions begin all the same, and the response goes to the peer.
func TestForgedInitiations(t *testing.T) {
	for name, forge := range map[string]func(m, genuine []byte){
		"with its code":      func(m, genuine []byte) { copy(m[116:132], genuine[116:]) },
		"with its index":     func(m, genuine []byte) { copy(m[4:8], genuine[4:]) },
		"with its beginning": func(m, genuine []byte) { copy(m[:60], genuine) },
		"with one bit turned": func(m, genuine []byte) {
			copy(m, genuine)
			m[100] ^= 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testForgedInitiations(t, forge)
		})
	}
}

func testForgedInitiations(t *testing.T, forge func(m, genuine []byte)) {
	var send atomic.Pointer[func([]byte)]
	var mu sync.Mutex
	var first []byte // the index of the first genuine initiation
	answered := map[string]bool{}
	a, b := through(t, &middlebox{seen: func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		switch f := send.Load(); {
		case f != nil && len(p) == sizeInitiation:
			if first == nil {
				first = bytes.Clone(p[4:8])
			}
			m := make([]byte, sizeInitiation)
			m[0] = typeInitiation
			forge(m, p)
			(*f)(m)
		case len(p) == sizeResponse:
			answered[string(p[8:12])] = true
		}
	}})
	spoofer, err := b.ListenPacket("udp", "10.2.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer spoofer.Close()
	f := func(m []byte) {
		spoofer.WriteTo(m, &net.UDPAddr{IP: net.ParseIP("10.2.0.1"), Port: 51820})
		time.Sleep(5 * time.Millisecond) // it is there first
	}
	send.Store(&f)
	echo(t, a, b, 10)
	// WireGuard tries again after five seconds, also on a machine that stalls.
	nstest.Eventually(t, "the first initiation is answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return answered[string(first)]
	})
}

// TestForgedResponses: what listens at the first endpoint of a peer answers every initiation with
// something that has its index. The other endpoint is tried all the same.
func TestForgedResponses(t *testing.T) {
	const forger = "10.98.0.2:4444"
	a, b := pair(t, nil, func(p *Peer) {
		if p.Endpoints = nil; p.Name == "b" {
			p.Endpoints = []string{forger, "10.98.0.2:51820"}
		}
	})
	c, err := b.ListenPacket("udp", forger)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		buf := make([]byte, 1500)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, size := range []int{12, sizeResponse} {
				m := make([]byte, size)
				m[0] = typeResponse
				copy(m[8:], buf[4:8])
				c.WriteTo(m, from)
			}
		}
	}()
	echo(t, a, b, 10)
	list, err := a.dev.Peers()
	if err != nil || list[0].Path.String() != "10.98.0.2:51820" {
		t.Errorf("the path is %+v: %v", list, err)
	}
}

// TestResponseGoesBack: the response to an initiation goes to where that came from, other packets
// to where authentic ones came from last.
func TestResponseGoesBack(t *testing.T) {
	b, _, _ := openBind(t, true)
	p := b.addPeer(newKey(t).Public())
	initiator, other := listenUDP(t), listenUDP(t)
	at := func(c *net.UDPConn) *remoteEndpoint {
		return &remoteEndpoint{path: path{addr: c.LocalAddr().(*net.UDPAddr).AddrPort()}, bind: b}
	}
	at(other).FromPeer(p.key)
	at(initiator).Initiated(p.key)
	response, data := make([]byte, sizeResponse), make([]byte, 200)
	response[0], data[0] = typeResponse, typeData
	for _, m := range []struct {
		message []byte
		to      *net.UDPConn
	}{{response, initiator}, {data, other}} {
		if err := b.Send([][]byte{m.message}, p, 0); err != nil {
			t.Fatal(err)
		}
		m.to.SetReadDeadline(time.Now().Add(5 * time.Minute))
		buf := make([]byte, 300)
		if n, _, err := m.to.ReadFrom(buf); err != nil || !bytes.Equal(buf[:n], m.message) {
			t.Errorf("a message of type %d: got % x, %v", m.message[0], buf[:n], err)
		}
	}
}

// TestPeerComesBack: a peer without an endpoint is removed and added again. Its first packet tells
// where it is, though it comes from where the peer that was removed was.
func TestPeerComesBack(t *testing.T) {
	a, b := pair(t, nil, func(p *Peer) {
		if p.Name == "b" {
			p.Endpoints = nil
		}
	})
	echo(t, b, a, 10)
	for _, s := range []*side{a, b} {
		other := a
		if s == a {
			other = b
		}
		if err := s.dev.RemovePeer(other.key.Public()); err != nil {
			t.Fatal(err)
		}
	}
	a.peer(t, b, nil)
	b.peer(t, a, nil, "10.98.0.1:51820")
	echo(t, b, a, 10)
}

func listenUDP(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestDuplicatedHandshakes: every datagram comes twice, at once. Each of many new sessions must
// carry data.
func TestDuplicatedHandshakes(t *testing.T) {
	a, b := through(t, &middlebox{repeat: 1000})
	for range 10 {
		echo(t, a, b, 100)
		time.Sleep(50 * time.Millisecond) // WireGuard takes no two initiations within 20 ms
		key := b.key.Public()
		if err := a.dev.RemovePeer(key); err != nil {
			t.Fatal(err)
		}
		a.peer(t, b, nil, "10.1.0.2:51820")
	}
}
