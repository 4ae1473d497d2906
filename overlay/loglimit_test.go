package overlay

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestLogLimiter(t *testing.T) {
	var q logLimiter
	now := int64(time.Hour)
	for i := range 1000 {
		if more, ok := q.may(kind{what: "a"}, now+int64(i)); ok != (i == 0) || more != 0 {
			t.Fatalf("%d: %d, %v", i, more, ok)
		}
	}
	if _, ok := q.may(kind{what: "a", peer: Key{1}}, now); !ok {
		t.Error("a move of another peer is not logged")
	}
	if more, ok := q.may(kind{what: "a"}, now+int64(logEvery)); !ok || more != 999 {
		t.Errorf("later: %d, %v", more, ok)
	}
	for i := range 5 * logKinds {
		q.may(kind{peer: Key{byte(i), byte(i >> 8)}}, now)
	}
	if len(q.said) > logKinds {
		t.Errorf("%d kinds are remembered", len(q.said))
	}
}

// TestMovesAreLoggedSeldom: an attacker sends a peer's packets from two addresses in turn, and the
// library complains for each packet.
func TestMovesAreLoggedSeldom(t *testing.T) {
	var log bytes.Buffer
	b, _, _ := openBind(t, true)
	b.log = slog.New(slog.NewTextHandler(&log, nil))
	p := b.addPeer(Key{1})
	paths := []*path{{addr: netip.MustParseAddrPort("192.0.2.1:1")},
		{addr: netip.MustParseAddrPort("192.0.2.2:1")}}
	for i := range 1000 {
		p.fromPeer(paths[i%2], b.now(), true)
	}
	d := &Device{peerSet: peerSet{log: b.log}, bind: b}
	for range 1000 {
		d.logger().Errorf("%v - Failed to send data packets: %v", "peer", "no route")
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || p.moves.Load() != 999 {
		t.Errorf("%d moves were logged by %d lines\n%.500s", p.moves.Load(), n, &log)
	}
}
