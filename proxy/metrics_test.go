package proxy

import (
	"testing"

	"github.com/weirnet/weir/eyeballs"
)

// TestAttemptsByOutcome: an attempt that gives a connection counts as connected, with a handshake
// or without, and as nothing else.
func TestAttemptsByOutcome(t *testing.T) {
	var d Dials
	dialer := &eyeballs.Dialer{Trace: d.Trace}
	c, err := dialer.DialContext(t.Context(), "tcp", "127.0.0.1:"+echo(t))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, kind := range []eyeballs.EventKind{eyeballs.EventConnected, eyeballs.EventWon, // TLS
		eyeballs.EventConnected, eyeballs.EventFailed, eyeballs.EventCancelled} {
		d.Trace(eyeballs.Event{Kind: kind})
	}
	if n := [...]uint64{d.connected.Load(), d.failed.Load(), d.cancelled.Load()}; n != [...]uint64{
		2, 1, 1} {
		t.Errorf("%v", n)
	}
}
