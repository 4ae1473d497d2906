package overlay

import (
	"context"
	"sync"

	"github.com/weirnet/weir/overlay/internal/device"
)

// handshakes are the peers with which a handshake is to begin. One goroutine begins them, one after
// the other. What seals packets does not. To begin a handshake takes as long as sealing a hundred
// packets, and a pod that sends to thousands of peers without a session would hold up all others.
type handshakes struct {
	mu    sync.Mutex
	list  []*device.Peer            // guarded by mu
	in    map[*device.Peer]struct{} // guarded by mu; those of list
	added chan struct{}
}

func newHandshakes() handshakes {
	return handshakes{in: map[*device.Peer]struct{}{}, added: make(chan struct{}, 1)}
}

// add has a handshake begin, unless one is under way.
func (h *handshakes) add(p *device.Peer) {
	if !p.MayBegin() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.in[p]; ok {
		return
	}
	h.in[p] = struct{}{}
	h.list = append(h.list, p)
	select {
	case h.added <- struct{}{}:
	default: // run has not looked yet
	}
}

// next takes the peer that has waited longest, or nil.
func (h *handshakes) next() *device.Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == 0 {
		h.list = nil
		return nil
	}
	p := h.list[0]
	h.list = h.list[1:]
	delete(h.in, p)
	return p
}

// run begins handshakes until ctx ends.
func (h *handshakes) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.added:
		}
		for p := h.next(); p != nil && ctx.Err() == nil; p = h.next() {
			p.Begin()
		}
	}
}
