package observe

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
)

// Hub passes events on to whoever listens. Its methods may be called from any goroutine.
type Hub struct {
	listening atomic.Int32
	counts    [len(kinds)][2]atomic.Uint64 // by kind and direction
	lost      atomic.Uint64

	// Listen, if set, is told when the first reader comes and when the last one has gone, so that
	// an engine can stop telling. It is called with the hub's lock held and must not call the hub.
	Listen func(bool)

	mu   sync.Mutex
	subs []*Sub // guarded by mu
}

// Publish passes one event on. The event is copied. It waits for nobody.
func (h *Hub) Publish(ev *firewall.Event) {
	if k := int(ev.Kind); k < len(h.counts) {
		h.counts[k][ev.Hook.Dir&1].Add(1)
	}
	if h.listening.Load() == 0 {
		return
	}
	h.mu.Lock()
	for _, s := range h.subs {
		s.put(ev)
	}
	h.mu.Unlock()
}

// Lose tells every reader that n events were lost on their way to the hub.
func (h *Hub) Lose(n uint64) {
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

// Count returns how many events of a kind came.
func (h *Hub) Count(k firewall.EventKind) uint64 {
	return h.CountAt(k, firewall.In) + h.CountAt(k, firewall.Out)
}

// CountAt returns how many events of a kind came from hooks of a direction.
func (h *Hub) CountAt(k firewall.EventKind, d firewall.Direction) uint64 {
	return h.counts[k][d&1].Load()
}

// Lost returns how many events were lost before the hub or in the queues of readers.
func (h *Hub) Lost() uint64 { return h.lost.Load() }

// Subscribe gives a new reader a queue for size events.
func (h *Hub) Subscribe(size int) *Sub {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subscribeLocked(size)
}

func (h *Hub) subscribeLocked(size int) *Sub {
	s := &Sub{hub: h, size: max(size, 1), wake: make(chan struct{}, 1)}
	h.subs = append(h.subs, s)
	h.listening.Store(int32(len(h.subs)))
	if len(h.subs) == 1 && h.Listen != nil {
		h.Listen(true)
	}
	return s
}

// Split takes what waits for a reader out of its queue and subscribes another one at the same
// moment: what one of the two is told and the other is not, is in neither twice nor nowhere.
func (h *Hub) Split(s *Sub, size int) (waiting []firewall.Event, lost uint64, other *Sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	waiting, lost = s.queue, s.lost
	s.queue, s.lost = nil, 0
	s.mu.Unlock()
	return waiting, lost, h.subscribeLocked(size)
}

// Sub is the queue of one reader. Its memory grows with what waits in it, up to its size.
type Sub struct {
	hub  *Hub
	size int
	wake chan struct{} // has room for one

	mu    sync.Mutex
	queue []firewall.Event // guarded by mu
	spare []firewall.Event // guarded by mu; what the reader had last
	lost  uint64           // guarded by mu; since the last Next
	turn  uint             // guarded by mu; of the events that came under pressure
}

// sampled is the part of the events that a reader gets while three quarters of its queue or more
// are waiting: one of so many. A reader who is too slow then sees something of all that happens,
// and not everything of one moment and nothing of the next.
const sampled = 8

func (s *Sub) put(ev *firewall.Event) {
	s.mu.Lock()
	leave := len(s.queue) >= s.size
	if !leave && len(s.queue)*4 >= s.size*3 {
		leave = s.turn%sampled != 0
		s.turn++
	}
	if leave {
		s.lost++
	} else {
		s.queue = append(s.queue, *ev)
	}
	first := len(s.queue) == 1
	s.mu.Unlock()
	if leave {
		s.hub.lost.Add(1)
	} else if first {
		s.nudge()
	}
}

func (s *Sub) lose(n uint64) {
	s.mu.Lock()
	s.lost += n
	s.mu.Unlock()
	s.nudge()
}

func (s *Sub) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for events and returns all that are there, with how many were lost since the last
// call; these are younger than the events before them and no older than the last one of this batch.
// The events are the reader's until it calls Next again.
func (s *Sub) Next(ctx context.Context) (events []firewall.Event, lost uint64, err error) {
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
func (s *Sub) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.subs {
		if other == s {
			h.subs = append(h.subs[:i:i], h.subs[i+1:]...)
			h.listening.Store(int32(len(h.subs)))
			if len(h.subs) == 0 && h.Listen != nil {
				h.Listen(false)
			}
			return
		}
	}
}
