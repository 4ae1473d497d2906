package observe

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
)

func TestHubGivesEveryEventToEveryReader(t *testing.T) {
	var h Hub
	var listening []bool
	h.Subscribed = func(on bool) { listening = append(listening, on) }
	h.Publish(&firewall.Event{Kind: firewall.EventDrop}) // without a reader
	a, b := h.Subscribe(100), h.Subscribe(2)
	for i := range 5 {
		h.Publish(&firewall.Event{Kind: firewall.EventDrop, Length: uint32(i)})
	}
	h.AddLost(10)
	for _, c := range []struct {
		s    *Subscription
		n    int
		lost uint64
	}{{a, 5, 10}, {b, 2, 13}} {
		got, lost, err := c.s.Next(t.Context())
		if err != nil || len(got) != c.n || lost != c.lost {
			t.Errorf("got %d events, %d lost, %v; want %d and %d", len(got), lost, err, c.n, c.lost)
		}
		for i := range got {
			if got[i].Length != uint32(i) {
				t.Errorf("event %d is %d", i, got[i].Length)
			}
		}
		c.s.Close()
		c.s.Close()
	}
	if h.Count(firewall.EventDrop) != 6 || h.Lost() != 13 {
		t.Errorf("counted %d, lost %d", h.Count(firewall.EventDrop), h.Lost())
	}
	if len(listening) != 2 || !listening[0] || listening[1] {
		t.Errorf("calls of Subscribed: %v", listening)
	}
}

// TestASlowReaderGetsASample: of what comes when the queue is nearly full, every eighth event,
// until the queue is full.
func TestASlowReaderGetsASample(t *testing.T) {
	var h Hub
	s := h.Subscribe(100)
	defer s.Close()
	for i := range 1000 {
		h.Publish(&firewall.Event{Kind: firewall.EventDrop, Length: uint32(i)})
	}
	got, lost, err := s.Next(t.Context())
	if err != nil || len(got) != 100 || lost != 900 || h.Lost() != 900 {
		t.Fatalf("%d events, %d lost, %d of the hub, %v", len(got), lost, h.Lost(), err)
	}
	for i, e := range got {
		want := uint32(i)
		if i >= 75 {
			want = uint32(75 + (i-75)*sampled)
		}
		if e.Length != want {
			t.Errorf("event %d is %d, want %d", i, e.Length, want)
		}
	}
	h.Publish(&firewall.Event{Kind: firewall.EventDrop, Length: 1000})
	if got, lost, err := s.Next(t.Context()); err != nil || len(got) != 1 || lost != 0 {
		t.Errorf("a reader that caught up: %d events, %d lost, %v", len(got), lost, err)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	var h Hub
	s := h.Subscribe(1)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestHubLosesNothingUncounted: with many writers and a slow reader, what arrives and what is lost
// add up.
func TestHubLosesNothingUncounted(t *testing.T) {
	var h Hub
	s := h.Subscribe(64)
	const writers, each = 4, 5000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				h.Publish(&firewall.Event{Kind: firewall.EventStart})
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var got, lost uint64
	for got+lost < writers*each {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		events, l, err := s.Next(ctx)
		cancel()
		if err != nil {
			t.Fatalf("%v after %d events and %d lost", err, got, lost)
		}
		got, lost = got+uint64(len(events)), lost+l
	}
	<-done
	if got+lost != writers*each || h.Lost() != lost {
		t.Errorf("got %d, lost %d, hub says %d lost", got, lost, h.Lost())
	}
}

func TestPublishDoesNotAllocate(t *testing.T) {
	var h Hub
	ev := &firewall.Event{Kind: firewall.EventDrop}
	if n := testing.AllocsPerRun(100, func() { h.Publish(ev) }); n != 0 {
		t.Errorf("%v allocations without a reader", n)
	}
	s := h.Subscribe(8)
	defer s.Close()
	for range 8 {
		h.Publish(ev)
	}
	if n := testing.AllocsPerRun(100, func() { h.Publish(ev) }); n != 0 {
		t.Errorf("%v allocations with a full queue", n)
	}
}

func BenchmarkPublish(b *testing.B) {
	ev := &firewall.Event{Kind: firewall.EventDrop}
	b.Run("no reader", func(b *testing.B) {
		var h Hub
		for b.Loop() {
			h.Publish(ev)
		}
	})
	b.Run("reader", func(b *testing.B) {
		var h Hub
		s := h.Subscribe(1 << 16)
		go func() {
			for {
				if _, _, err := s.Next(b.Context()); err != nil {
					return
				}
			}
		}()
		for b.Loop() {
			h.Publish(ev)
		}
		b.ReportMetric(float64(h.Lost())/float64(b.N), "lost/op")
	})
}

func BenchmarkJSON(b *testing.B) {
	g := newRandom(b)
	e := g.event()
	e.Kind, e.Recv = firewall.EventDrop, "eth0"
	var line []byte
	for b.Loop() {
		line = e.AppendJSON(line[:0])
	}
}
