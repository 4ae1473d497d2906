package overlay

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// middlebox forwards datagrams between two nodes, and is not good at it.
type middlebox struct {
	lose, repeat, delay int // in 1000 datagrams
	seen                func(b []byte)
	mu                  sync.Mutex
	rnd                 *rand.Rand
}

// decide draws what happens to one datagram.
func (m *middlebox) decide() (duplicates int, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.rnd.IntN(1000)
	switch {
	case n < m.lose:
		return 0, false
	case n < m.lose+m.repeat:
		return 2, false
	}
	return 1, n < m.lose+m.repeat+m.delay
}

// serve forwards what comes to in, to dst by out.
func (m *middlebox) serve(in, out net.PacketConn, dst string) {
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(dst))
	buf := make([]byte, 65535)
	for {
		n, _, err := in.ReadFrom(buf)
		if err != nil {
			return
		}
		if m.seen != nil {
			m.seen(buf[:n])
		}
		duplicates, late := m.decide()
		if late {
			b := bytes.Clone(buf[:n])
			time.AfterFunc(time.Millisecond, func() { out.WriteTo(b, to) })
			continue
		}
		for range duplicates {
			out.WriteTo(buf[:n], to)
		}
	}
}

// through makes two nodes that can only talk over a middle box.
//
//	a 10.1.0.1/24 -- 10.1.0.2/24 m 10.2.0.2/24 -- 10.2.0.1/24 b
func through(t *testing.T, m *middlebox) (a, b *side) {
	t.Helper()
	lab := nstest.New(t)
	a, b = &side{Node: lab.Node("a"), addr: "10.99.0.1"},
		&side{Node: lab.Node("b"), addr: "10.99.0.2"}
	mid := lab.Node("m")
	lab.Join(a.Node, "wire", "10.1.0.1/24", mid, "left", "10.1.0.2/24")
	lab.Join(b.Node, "wire", "10.2.0.1/24", mid, "right", "10.2.0.2/24")
	m.rnd = rand.New(rand.NewPCG(3, 4))
	var conns []net.PacketConn
	for _, addr := range []string{"10.1.0.2:51820", "10.2.0.2:51820"} {
		c, err := mid.ListenPacket("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.(*net.UDPConn).SetReadBuffer(4 << 20)
		conns = append(conns, c)
	}
	go m.serve(conns[0], conns[1], "10.2.0.1:51820")
	go m.serve(conns[1], conns[0], "10.1.0.1:51820")
	a.start(t, nil)
	b.start(t, nil)
	a.peer(t, b, nil, "10.1.0.2:51820")
	b.peer(t, a, nil, "10.2.0.2:51820")
	return a, b
}

func TestLossReorderingAndDuplicates(t *testing.T) {
	a, b := through(t, &middlebox{lose: 10, repeat: 20, delay: 30})
	echo(t, a, b, 100, 1300)
	download(t, a, b, 4<<20, nil)
	download(t, b, a, 4<<20, nil)
}

// wireRecord is what a middle box saw, 2000 datagrams at most.
type wireRecord struct {
	mu   sync.Mutex
	seen [][]byte
}

func (w *wireRecord) add(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) < 2000 {
		w.seen = append(w.seen, bytes.Clone(p))
	}
}

func (w *wireRecord) all() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// garbage returns datagrams of every length and type, some of the size of real messages, and some
// that are recorded ones with one bit turned.
func garbage(recorded [][]byte) (all [][]byte) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for n := range 4000 {
		p := make([]byte, rnd.IntN(1500))
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		if len(p) > 4 && n%2 == 0 {
			p[0], p[1], p[2], p[3] = byte(rnd.IntN(6)), 0, 0, 0
		}
		switch n % 8 {
		case 0:
			p = append(p, make([]byte, 1500)...)[:148]
		case 2:
			p = append(p, make([]byte, 1500)...)[:92]
		case 4:
			p = bytes.Clone(recorded[rnd.IntN(len(recorded))])
			p[rnd.IntN(len(p))] ^= 1 << rnd.IntN(8)
		}
		all = append(all, p)
	}
	return all
}

// countReceived returns how many datagrams come to a socket in some time, and at once when so many
// have come.
func countReceived(c net.PacketConn, most time.Duration, enough int) (n int) {
	c.SetReadDeadline(time.Now().Add(most))
	buf := make([]byte, 100)
	for n < enough {
		if _, _, err := c.ReadFrom(buf); err != nil {
			return n
		}
		n++
	}
	return n
}

// TestHostileWire replays everything that a session sent, and throws garbage of every length and
// type: no packet may come through a second time, and the session must live.
func TestHostileWire(t *testing.T) {
	var wire wireRecord
	a, b := through(t, &middlebox{seen: wire.add})
	server, err := b.ListenPacket("udp", b.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := a.DialContext(t.Context(), "udp", "10.99.0.2:4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo(t, a, b, 10)
	const sent = 200
	for i := range sent {
		c.Write([]byte{byte(i)})
	}
	if got := countReceived(server, testTimeout, sent); got != sent {
		t.Fatalf("%d of %d datagrams came", got, sent)
	}
	before, err := b.dev.Peers()
	if err != nil {
		t.Fatal(err)
	}
	recorded := wire.all()
	hostile, err := a.ListenPacket("udp", "10.1.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hostile.Close()
	// To b through the middle box, as if a had sent it, and to a itself from an address that it
	// does not know.
	for i, p := range slices.Concat(recorded, garbage(recorded)) {
		hostile.WriteTo(p, &net.UDPAddr{IP: net.IPv4(10, 1, 0, 2), Port: 51820})
		hostile.WriteTo(p, &net.UDPAddr{IP: net.IPv4(10, 1, 0, 1), Port: 51820})
		if i%100 == 99 {
			time.Sleep(time.Millisecond)
		}
	}
	if n := countReceived(server, 300*time.Millisecond, math.MaxInt); n != 0 {
		t.Errorf("%d datagrams came through twice, or from nowhere", n)
	}
	after, err := b.dev.Peers()
	if err != nil || after[0].Path != before[0].Path {
		t.Errorf("the attack moved the path from %s to %s: %v", before[0].Path, after[0].Path, err)
	}
	if list, _ := a.dev.Peers(); list[0].Path.String() != "10.1.0.2:51820" {
		t.Errorf("the attack moved the path of a to %s", list[0].Path)
	}
	echo(t, a, b, 100)
	b.dev.bind.remotes.mu.Lock()
	defer b.dev.bind.remotes.mu.Unlock()
	if n := len(b.dev.bind.remotes.m); n > remoteLimit {
		t.Errorf("%d sources are kept", n)
	}
}

// TestSpoofedSource: a peer may send from its own pod ranges only, and what it sends from elsewhere
// is counted.
func TestSpoofedSource(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 10)
	a.IP("address add 10.99.0.66/32 dev weir0")
	server, err := b.ListenPacket("udp", b.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, from := range []string{"10.99.0.66", "10.99.0.1"} {
		c, err := a.ListenPacket("udp", from+":0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WriteTo([]byte(from),
			&net.UDPAddr{IP: net.IPv4(10, 99, 0, 2), Port: 4000}); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	buf := make([]byte, 100)
	server.SetReadDeadline(time.Now().Add(5 * time.Minute))
	n, _, err := server.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "10.99.0.1" {
		t.Errorf("got %q: %v; the spoofed one must not come", buf[:n], err)
	}
	if n := b.dev.Stats().Spoofed; n != 1 { // what came was sent behind it
		t.Errorf("%d packets are counted, want 1", n)
	}
}
