package overlay

import (
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/blake2s"

	"github.com/weirnet/weir/internal/nstest"
)

// initiation is a message that begins a handshake with the owner of a public key. It is as a sender
// can make it who knows nothing but that key: mac1 is right, the rest is noise.
func initiation(t *testing.T, rnd *rand.ChaCha8, to Key) []byte {
	t.Helper()
	p := make([]byte, sizeInitiation)
	rnd.Read(p[4:116])
	p[0] = typeInitiation
	key := blake2s.Sum256(append([]byte("mac1----"), to[:]...))
	mac, err := blake2s.New128(key[:])
	if err != nil {
		t.Fatal(err)
	}
	mac.Write(p[:116])
	copy(p[116:], mac.Sum(nil))
	return p
}

// TestHandshakeFlood: an attacker that knows the public key begins handshakes without end. An
// existing session continues, the peer gets a new one, and the flood gets nothing but cookies,
// which are smaller than what it sent, and no more of them.
func TestHandshakeFlood(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	first, err := b.dev.Peers()
	if err != nil {
		t.Fatal(err)
	}
	hostile, err := a.ListenPacket("udp", "10.98.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5100 * time.Millisecond) // WireGuard allows no handshake sooner
	var sent, cookies, others atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		floodInitiations(hostile, initiations(t, b.key.Public()), &sent, stop)
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		countAnswers(hostile, &cookies, &others)
	}()
	download(t, a, b, 2<<20, nil)
	a.dev.wg.ScheduleHandshakeOnUserSend([32]byte(b.key.Public()))
	nstest.Eventually(t, "the peer gets a new session during the flood", func() bool {
		echo(t, a, b, 100)
		now, err := b.dev.Peers()
		return err == nil && now[0].LastHandshake.After(first[0].LastHandshake)
	})
	nstest.Eventually(t, "the flood gets cookies", func() bool {
		return sent.Load() >= 5000 && cookies.Load() > 0
	})
	close(stop)
	hostile.Close()
	<-done
	<-done
	t.Logf("%d sent, %d cookies", sent.Load(), cookies.Load())
	if cookies.Load() > sent.Load() || others.Load() > 0 {
		t.Errorf("%d sent; %d cookies and %d others came back", sent.Load(), cookies.Load(),
			others.Load())
	}
}

// initiations are ready before the flood begins, or a slow sender would be no load. mac1 is wrong
// in every second one.
func initiations(t *testing.T, to Key) (all [][]byte) {
	t.Helper()
	rnd := rand.NewChaCha8([32]byte{7})
	for i := range 1000 {
		p := initiation(t, rnd, to)
		if i%2 == 1 {
			p[4] ^= 1
		}
		all = append(all, p)
	}
	return all
}

// floodInitiations sends messages until stop is closed.
func floodInitiations(c net.PacketConn, all [][]byte, sent *atomic.Int64, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if _, err := c.WriteTo(all[i%len(all)],
			&net.UDPAddr{IP: net.IPv4(10, 98, 0, 2), Port: 51820}); err == nil {
			sent.Add(1)
		}
	}
}

// countAnswers counts what comes to a socket until it is closed: WireGuard's cookie replies, which
// have 64 bytes and type 3, and everything else.
func countAnswers(c net.PacketConn, cookies, others *atomic.Int64) {
	buf := make([]byte, 2000)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if n == 64 && buf[0] == 3 {
			cookies.Add(1)
		} else {
			others.Add(1)
		}
	}
}
