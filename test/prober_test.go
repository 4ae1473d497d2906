package test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// prober sends numbered datagrams to a port that the rules close, all the time, and counts those
// that arrive of the ones that were sent since begin.
type prober struct {
	mu                   sync.Mutex
	sent, begun, arrived uint64 // guarded by mu; begun is the number of the last one before
}

func newProber(t *testing.T, server, client *nstest.Node) *prober {
	t.Helper()
	k := &prober{}
	in, err := server.ListenPacket("udp", ":81")
	if err != nil {
		t.Fatal(err)
	}
	out, err := client.DialContext(t.Context(), "udp", "10.66.0.1:81")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); in.Close(); out.Close() })
	go func() {
		for b := make([]byte, 64); ctx.Err() == nil; {
			if n, _, err := in.ReadFrom(b); err == nil && n == 8 {
				k.came(binary.BigEndian.Uint64(b))
			}
		}
	}()
	go func() {
		for ctx.Err() == nil {
			out.Write(binary.BigEndian.AppendUint64(nil, k.next()))
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return k
}

// next is the number of the next datagram.
func (k *prober) next() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent++
	return k.sent
}

// came counts a datagram that arrives.
func (k *prober) came(number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number > k.begun {
		k.arrived++
	}
}

// begin forgets what was sent until now, whenever that arrives.
func (k *prober) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun, k.arrived = k.sent, 0
}

func (k *prober) counts() (sent, arrived uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sent, k.arrived
}

// awaits waits until its counts are as they should be.
func (k *prober) awaits(what string, is func(sent, arrived uint64) bool) error {
	for end := time.Now().Add(testTimeout); !is(k.counts()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			sent, arrived := k.counts()
			return fmt.Errorf("%s: %d are sent, %d arrive", what, sent, arrived)
		}
	}
	return nil
}

// wait waits until so many more have arrived.
func (k *prober) wait(n uint64) error {
	_, from := k.counts()
	return k.awaits("more arrive", func(_, arrived uint64) bool { return arrived >= from+n })
}

// quiet fails the test if any has arrived since begin, or none is sent.
func (k *prober) quiet(t *testing.T, when string) {
	t.Helper()
	if err := k.silent(); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// silent sends some more and returns an error if any has arrived since begin.
func (k *prober) silent() error {
	from, _ := k.counts()
	err := k.awaits("more are sent", func(sent, _ uint64) bool { return sent >= from+20 })
	if _, arrived := k.counts(); err == nil && arrived > 0 {
		err = fmt.Errorf("%d datagrams to a closed port arrive", arrived)
		k.begin()
	}
	return err
}
