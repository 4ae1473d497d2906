package device

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/overlay/internal/tai64n"
)

// newEnd returns a device with a key, of which nothing runs.
func newEnd(t *testing.T) *Device {
	t.Helper()
	d, _ := bare(t)
	d.peers.keyMap = map[NoisePublicKey]*Peer{}
	key, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetPrivateKey(key); err != nil {
		t.Fatal(err)
	}
	return d
}

// knows makes other a peer of d.
func (device *Device) knows(t *testing.T, other *Device) *Peer {
	t.Helper()
	p, err := device.NewPeer(other.staticIdentity.publicKey)
	if err != nil {
		t.Fatal(err)
	}
	p.runningState.isRunning.Store(true)
	t.Cleanup(p.timersStop)
	return p
}

// together calls f in several goroutines at once, and returns how many of them report true.
func together(f func() bool) int {
	var n atomic.Int32
	var begin, end sync.WaitGroup
	begin.Add(1)
	for range 4 {
		end.Go(func() {
			begin.Wait()
			if f() {
				n.Add(1)
			}
		})
	}
	begin.Done()
	end.Wait()
	return int(n.Load())
}

// TestCopiesAtOnce: workers that get copies of one handshake message at once accept one of them.
// Otherwise there would be two sessions with the same keys and counters, or different keys at the
// ends.
func TestCopiesAtOnce(t *testing.T) {
	a, b := newEnd(t), newEnd(t)
	toB, toA := a.knows(t, b), b.knows(t, a)
	for range 200 {
		initiation, err := a.CreateMessageInitiation(toB)
		if err != nil {
			t.Fatal(err)
		}
		// it takes one in 20 ms, and time stamps are rounded
		toA.handshake.lastInitiationConsumption = time.Time{}
		toA.handshake.lastTimestamp = tai64n.Timestamp{}
		if n := together(func() bool {
			return b.ConsumeMessageInitiation(initiation, nil) != nil
		}); n != 1 {
			t.Fatalf("%d of 4 copies of an initiation were accepted", n)
		}
		response, err := b.CreateMessageResponse(toA)
		if err != nil {
			t.Fatal(err)
		}
		if err := toA.BeginSymmetricSession(); err != nil {
			t.Fatal(err)
		}
		if n := together(func() bool {
			p := a.ConsumeMessageResponse(response)
			return p != nil && p.BeginSymmetricSession() == nil
		}); n != 1 {
			t.Fatalf("4 copies of a response began %d sessions", n)
		}
		sealed := toB.keypairs.current.send.Seal(nil, make([]byte, 12), []byte("data"), nil)
		opened, err := toA.keypairs.next.Load().receive.Open(nil, make([]byte, 12), sealed, nil)
		if err != nil || string(opened) != "data" {
			t.Fatalf("got %q: %v", opened, err)
		}
	}
}
