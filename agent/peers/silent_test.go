package peers

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/overlay"
)

// answering is a device with one peer.
type answering struct {
	device
	peer overlay.PeerStatus
}

func (a *answering) Peers() ([]overlay.PeerStatus, error) {
	return []overlay.PeerStatus{a.peer}, nil
}

// TestSilentPeer: a peer that leaves handshakes without an answer for a minute is a problem until
// it answers. One to which nothing is sent, to which keepalives go within a session, or that has to
// connect first, is none.
func TestSilentPeer(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	sends := func(p *overlay.PeerStatus) { p.Sent += 148 }
	for name, c := range map[string]struct {
		endpoints []string
		handshake time.Time
		each      func(*overlay.PeerStatus) // 5 s
		problem   bool
	}{
		"never answered": {[]string{"192.0.2.2:51820"}, time.Time{}, sends, true},
		"cannot be sent to": {[]string{"192.0.2.2:51820"}, time.Time{},
			func(p *overlay.PeerStatus) { p.Begun++ }, true},
		"answers no more": {[]string{"192.0.2.2:51820"}, ago(time.Hour), sends, true},
		"answers no more, and the clock was set back": {[]string{"192.0.2.2:51820"},
			ago(-5 * time.Hour), sends, true},
		"in a session": {[]string{"192.0.2.2:51820"}, ago(time.Minute), sends, false},
		"nothing is sent": {[]string{"192.0.2.2:51820"}, time.Time{},
			func(*overlay.PeerStatus) {}, false},
		"answers": {[]string{"192.0.2.2:51820"}, ago(time.Hour),
			func(p *overlay.PeerStatus) { p.Sent += 148; p.Received += 92 }, false},
		"has to connect": {nil, ago(time.Hour), sends, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &answering{peer: overlay.PeerStatus{Peer: overlay.Peer{Name: "right",
				Endpoints: c.endpoints}, LastHandshake: c.handshake}}
			p := New(Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			p.byName["right"] = d.peer.Peer
			p.tunnel.Store(&tunnel{device: d})
			now := time.Now()
			wants := func(when string, problem bool) {
				t.Helper()
				all := p.silentProblemsLocked(now)
				if !problem && len(all) == 0 {
					return
				}
				if !problem || len(all) != 1 || !strings.Contains(all[0].What,
					"peer right does not answer") || !strings.Contains(all[0].What,
					"192.0.2.2:51820") || !strings.Contains(all[0].Advice, "weir peer key") {
					t.Errorf("%s: %+v", when, all)
				}
			}
			for range 13 {
				p.listenLocked(now)
				wants("before a minute", false)
				now = now.Add(5 * time.Second)
				c.each(&d.peer)
			}
			p.listenLocked(now)
			wants("after a minute", c.problem)
			now = now.Add(time.Hour) // it was not tried any more
			p.listenLocked(now)
			wants("an hour later", c.problem)
			d.peer.LastHandshake = time.Now()
			p.listenLocked(now)
			wants("after its handshake", false)
		})
	}
}
