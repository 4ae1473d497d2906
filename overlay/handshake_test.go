package overlay

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// The places of the first message authentication code.
	macOfInitiation = 116
	macOfResponse   = 60
)

func TestDuplicates(t *testing.T) {
	s := newHandshakes()
	initiation, response, data := make([]byte, sizeInitiation), make([]byte, sizeResponse),
		make([]byte, 200)
	initiation[0], initiation[macOfInitiation], response[0], response[macOfResponse], data[0] = 1,
		7, 2, 8, 4
	now, from := int64(1e12), &path{}
	for _, b := range [][]byte{initiation, response} {
		for i := range b { // an attacker forges every part of it first, but for its type and size
			if i > 3 {
				forged := bytes.Clone(b)
				if forged[i] ^= 1; s.isDuplicate(forged, from, now) {
					t.Errorf("another message, at byte %d, is taken for a copy", i)
				}
			}
		}
		if s.isDuplicate(b, from, now) {
			t.Error("the first one is taken for a copy")
		}
		if !s.isDuplicate(b, from, now+1) || !s.isDuplicate(b, from, now+handshakeLife-1) {
			t.Error("a copy is not known")
		}
		if s.isDuplicate(b, from, now+handshakeLife+1) {
			t.Error("a copy is remembered too long")
		}
	}
	for range 2 {
		if s.isDuplicate(data, from, now) || s.isDuplicate(data[:0], from, now) ||
			s.isDuplicate(initiation[:100], from, now) {
			t.Error("a message that is not a handshake counts as a duplicate")
		}
	}
	other := bytes.Clone(initiation)
	for i := range 3 * handshakesKept { // a flood must not make the table grow
		binary.LittleEndian.PutUint32(other[4:], uint32(i))
		s.isDuplicate(other, from, now+handshakeLife)
	}
	if len(s.begun) > handshakesKept {
		t.Errorf("%d initiations are remembered", len(s.begun))
	}
}

// TestInitiators: the answer to an initiation goes to where the first one with its index came from.
func TestInitiators(t *testing.T) {
	s := newHandshakes()
	message := func(index uint32, more byte) []byte {
		b := make([]byte, sizeInitiation)
		b[0], b[50] = typeInitiation, more
		binary.LittleEndian.PutUint32(b[4:], index)
		return b
	}
	now := int64(1e12)
	genuine, forged := &path{ifindex: 1}, &path{ifindex: 2}
	s.isDuplicate(message(7, 0), genuine, now)
	s.isDuplicate(message(7, 1), forged, now) // an attacker saw the first one
	s.isDuplicate(message(8, 1), forged, now)
	if s.initiatorPath(7, now) != genuine || s.initiatorPath(8, now) != forged ||
		s.initiatorPath(9, now) != nil {
		t.Errorf("initiators are %v, %v, %v", s.initiatorPath(7, now), s.initiatorPath(8, now),
			s.initiatorPath(9, now))
	}
	if later := now + handshakeLife; s.initiatorPath(7, later) != nil {
		t.Error("a caller is remembered too long")
	} else if s.isDuplicate(message(7, 2), forged, later); s.initiatorPath(7, later) != forged {
		t.Error("an index that was used again is not known")
	}
	for i := range uint32(handshakesKept) {
		s.isDuplicate(message(100+i, 0), genuine, now+handshakeLife)
	}
	if s.initiatorPath(7, now+handshakeLife) != nil ||
		s.initiatorPath(100, now+handshakeLife) != genuine ||
		len(s.begun) != handshakesKept {
		t.Errorf("after a flood %d callers are known", len(s.begun))
	}
}

// TestForgedDuplicate: an attacker on the path sends a message that has the code of each
// initiation before that comes. Sessions begin all the same.
func TestForgedDuplicate(t *testing.T) {
	var forge atomic.Pointer[func([]byte)]
	a, b := through(t, &middlebox{seen: func(p []byte) {
		if f := forge.Load(); f != nil && len(p) == sizeInitiation {
			m := make([]byte, sizeInitiation)
			m[0] = typeInitiation
			copy(m[macOfInitiation:], p[macOfInitiation:macOfInitiation+16])
			(*f)(m)
		}
	}})
	spoofer, err := b.ListenPacket("udp", "10.2.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer spoofer.Close()
	send := func(m []byte) {
		spoofer.WriteTo(m, &net.UDPAddr{IP: net.ParseIP("10.2.0.1"), Port: 51820})
		time.Sleep(5 * time.Millisecond) // it is there first
	}
	forge.Store(&send)
	begin := time.Now()
	echo(t, a, b, 10)
	// WireGuard tries again after five seconds
	if d := time.Since(begin); d > 4500*time.Millisecond {
		t.Errorf("the first session took %v", d)
	}
	if n := a.dev.Stats().Begun; n != 1 {
		t.Errorf("%d handshakes were begun, want one", n)
	}
}

// TestForgedInitiator: an attacker begins a handshake in a peer's name, which needs its public key
// alone, between the peer's own initiation and its answer. The answer goes to the peer.
func TestForgedInitiator(t *testing.T) {
	b, _, _ := openBind(t, true)
	key := newKey(t).Public()
	p := b.addPeer(key)
	p.setCandidates(nil)
	now := b.now()
	genuine := make([]byte, sizeInitiation)
	genuine[0] = typeInitiation
	binary.LittleEndian.PutUint32(genuine[4:], 77)
	at := func(to netip.AddrPort) *remoteEndpoint {
		return &remoteEndpoint{path: path{addr: to}, bind: b}
	}
	r := &receiver{bind: b}
	peer := listenUDP(t)
	thief := listenUDP(t)
	if !r.accept(genuine, at(peer.LocalAddr().(*net.UDPAddr).AddrPort()), now) {
		t.Fatal("an initiation is refused")
	}
	forged := bytes.Clone(genuine)
	for i := range uint32(100) {
		binary.LittleEndian.PutUint32(forged[4:], 1000+i)
		r.accept(forged, at(thief.LocalAddr().(*net.UDPAddr).AddrPort()), now)
	}
	response := make([]byte, sizeResponse)
	response[0] = typeResponse
	binary.LittleEndian.PutUint32(response[8:], 77)
	if err := b.Send([][]byte{response}, p, 0); err != nil {
		t.Fatal(err)
	}
	peer.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, _, err := peer.ReadFrom(make([]byte, 200)); err != nil || n != sizeResponse {
		t.Errorf("the peer got %d bytes: %v", n, err)
	}
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
	if s := a.dev.Stats(); s.Copies == 0 {
		t.Errorf("no copy was seen: %+v", s)
	}
}
