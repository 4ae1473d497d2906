package observe

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
)

// Hub distributes events to its readers. Its methods may be called from any goroutine.
type Hub struct {
	readers atomic.Int32                               // len(subs)
	counts  [firewall.EventRefuse + 1][2]atomic.Uint64 // by kind and direction
	lost    atomic.Uint64

	// Subscribed, if set, is called with true when the first reader subscribes and with false when
	// the last one closes, so that the engine makes events only for readers. The hub's lock is held
	// during the call: it must not call the hub.
	Subscribed func(bool)

	mu   sync.Mutex
	subs []*Subscription // guarded by mu
}

// Publish gives a copy of one event to every reader. It is called on the packet path and never
// blocks on a reader.
func (h *Hub) Publish(ev *firewall.Event) {
	if k := int(ev.Kind); k < len(h.counts) {
		h.counts[k][ev.Hook.Dir&1].Add(1)
	}
	if h.readers.Load() == 0 {
		return
	}
	h.mu.Lock()
	for _, s := range h.subs {
		s.put(ev)
	}
	h.mu.Unlock()
}

// AddLost records for every reader that n events were lost before the hub.
func (h *Hub) AddLost(n uint64) {
	if n == 0 {
		return
	}
	h.lost.Add(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subs {
		s.lose(n)
	}
}

// Count returns the number of published events of a kind.
func (h *Hub) Count(k firewall.EventKind) uint64 {
	return h.CountAt(k, firewall.In) + h.CountAt(k, firewall.Out)
}

// CountAt returns the number of published events of a kind from hooks of a direction.
func (h *Hub) CountAt(k firewall.EventKind, d firewall.Direction) uint64 {
	return h.counts[k][d&1].Load()
}

// Lost returns how many events were lost before the hub or in the queues of readers.
func (h *Hub) Lost() uint64 { return h.lost.Load() }

// Subscribe gives a new reader a queue for size events.
func (h *Hub) Subscribe(size int) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subscribeLocked(size)
}

func (h *Hub) subscribeLocked(size int) *Subscription {
	s := &Subscription{hub: h, size: max(size, 1), wake: make(chan struct{}, 1)}
	h.subs = append(h.subs, s)
	h.readers.Store(int32(len(h.subs)))
	if len(h.subs) == 1 && h.Subscribed != nil {
		h.Subscribed(true)
	}
	return s
}

// DrainAndSubscribe empties the queue of a reader and subscribes another one in one step. An event
// is either among those returned or in the new queue, never in both and never missing.
func (h *Hub) DrainAndSubscribe(s *Subscription, size int) (waiting []firewall.Event, lost uint64,
	other *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	waiting, lost = s.queue, s.lost
	s.queue, s.lost = nil, 0
	s.mu.Unlock()
	return waiting, lost, h.subscribeLocked(size)
}

// Subscription is the queue of one reader. Its memory grows with the number of queued events, up to
// its size.
type Subscription struct {
	hub  *Hub
	size int
	wake chan struct{} // of capacity 1

	mu    sync.Mutex
	queue []firewall.Event // guarded by mu
	spare []firewall.Event // guarded by mu; the reader's previous batch, for reuse
	lost  uint64           // guarded by mu; since the last Next
	turn  uint             // guarded by mu; counts the events that came to a nearly full queue
}

// sampled: while a queue is filled to three quarters or more, its reader gets one of so many
// events. A slow reader then sees a sample of everything, instead of all of one moment and nothing
// of the next.
const sampled = 8

func (s *Subscription) put(ev *firewall.Event) {
	s.mu.Lock()
	drop := len(s.queue) >= s.size
	if !drop && len(s.queue)*4 >= s.size*3 {
		drop = s.turn%sampled != 0
		s.turn++
	}
	if drop {
		s.lost++
	} else {
		s.queue = append(s.queue, *ev)
	}
	first := len(s.queue) == 1
	s.mu.Unlock()
	if drop {
		s.hub.lost.Add(1)
	} else if first {
		s.signal()
	}
}

func (s *Subscription) lose(n uint64) {
	s.mu.Lock()
	s.lost += n
	s.mu.Unlock()
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for events and returns all that are there, and how many were lost since the last call.
// The lost ones are newer than the previous batch and not newer than the last event of this one.
// The reader owns the events until it calls Next again.
func (s *Subscription) Next(ctx context.Context) (events []firewall.Event, lost uint64, err error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 || s.lost > 0 {
			events, lost = s.queue, s.lost
			s.queue, s.spare, s.lost = s.spare[:0], s.queue, 0
			s.mu.Unlock()
			return events, lost, nil
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.subs {
		if other == s {
			h.subs = append(h.subs[:i:i], h.subs[i+1:]...)
			h.readers.Store(int32(len(h.subs)))
			if len(h.subs) == 0 && h.Subscribed != nil {
				h.Subscribed(false)
			}
			return
		}
	}
}
