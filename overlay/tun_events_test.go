package overlay

import (
	"testing"

	"github.com/tailscale/wireguard-go/tun"
)

// TestEventsEnd: an event of an interface that is gone goes nowhere, and one that waits to be taken
// is given up when the interface goes.
func TestEventsEnd(t *testing.T) {
	e := newTunEvents()
	go e.send(tun.EventMTUUpdate)
	if got := <-e.list; got != tun.EventMTUUpdate {
		t.Errorf("event %v", got)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		e.send(tun.EventMTUUpdate) // it is not taken
	}()
	e.close()
	<-sent
	e.send(tun.EventMTUUpdate) // to a closed channel it would panic
	if _, open := <-e.list; open {
		t.Error("there are events behind the end")
	}
}
