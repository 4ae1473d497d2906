package overlay

import (
	"sync"

	"github.com/tailscale/wireguard-go/tun"
)

// tunEvents are the events of the interface for the library. That closes the interface, and with it
// the events, when it was deleted: at any moment, also while one is sent.
type tunEvents struct {
	list  chan tun.Event
	ended chan struct{} // closed before list, so that senders let go

	mu sync.Mutex // held while one is sent, and while list is closed
}

func newTunEvents() *tunEvents {
	return &tunEvents{list: make(chan tun.Event), ended: make(chan struct{})}
}

// send waits until the library has taken an event, or the events have ended.
func (e *tunEvents) send(event tun.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.ended:
		return // list may be closed
	default:
	}
	select {
	case e.list <- event:
	case <-e.ended:
	}
}

// close ends the events. It is called once.
func (e *tunEvents) close() {
	close(e.ended)
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.list)
}
