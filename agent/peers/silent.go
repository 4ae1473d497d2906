package peers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/overlay"
)

const (
	// silentAfter is how long a peer may leave handshakes without an answer: WireGuard repeats them
	// every 5 s.
	silentAfter = time.Minute
	// silentShown is how many such peers the status names: where the network is cut, all are.
	silentShown = 5
)

// silence is what is known of the answers of one peer.
type silence struct {
	sent, received uint64 // bytes, at the last sample
	begun          uint64 // handshakes
	handshake      time.Time
	since          time.Time // since when an answer is due, zero if none is
	reported       bool
}

// step takes a sample. Without a session only handshakes are sent, and a peer that works answers
// them. Within one, keepalives need no answer. Nothing is due from a peer to which nothing is sent.
func (s *silence) step(now time.Time, p *overlay.PeerStatus) {
	last := *s
	s.sent, s.received, s.begun, s.handshake = p.Sent, p.Received, p.Begun, p.LastHandshake
	tried := p.Sent > last.sent || p.Begun > last.begun
	switch {
	case p.Received != last.received || !p.LastHandshake.Equal(last.handshake):
		s.since = time.Time{}
	case s.since.IsZero() && tried && !overlay.InSession(p.LastHandshake, now):
		s.since = now
	}
}

func (s *silence) lasts(now time.Time) bool {
	return !s.since.IsZero() && now.Sub(s.since) >= silentAfter
}

// listenLocked notes which peers answer. One without an endpoint has to connect first, and may be
// away.
func (p *Service) listenLocked(now time.Time) {
	t := p.tunnel.Load()
	if t == nil {
		clear(p.silent)
		return
	}
	list, err := t.device.Peers()
	if err != nil {
		return // the interface is gone, which watch sees
	}
	there := map[string]bool{}
	for i := range list {
		one := &list[i]
		if one.Unencrypted || len(one.Endpoints) == 0 {
			continue
		}
		there[one.Name] = true
		s := p.silent[one.Name]
		if s == nil {
			p.silent[one.Name] = &silence{sent: one.Sent, received: one.Received,
				begun: one.Begun, handshake: one.LastHandshake}
			continue
		}
		switch s.step(now, one); {
		case s.lasts(now) && !s.reported:
			s.reported = true
			p.config.Log.Warn("a peer does not answer", "peer", one.Name, "endpoints",
				one.Endpoints)
		case s.reported && !s.lasts(now):
			s.reported = false
			p.config.Log.Info("the peer answers", "peer", one.Name)
		}
	}
	maps.DeleteFunc(p.silent, func(name string, _ *silence) bool { return !there[name] })
}

func (p *Service) silentProblemsLocked(now time.Time) (all []api.Problem) {
	more := 0
	for _, name := range slices.Sorted(maps.Keys(p.silent)) {
		s := p.silent[name]
		if !s.lasts(now) {
			continue
		}
		if len(all) == silentShown {
			more++
			continue
		}
		all = append(all, api.Problem{
			What: fmt.Sprintf("peer %s does not answer: no packet came from %s for %v", name,
				strings.Join(p.byName[name].Endpoints, ", "),
				now.Sub(s.since).Round(time.Second)),
			Advice: "check that the peer runs, that its clock is right, that the rules of both " +
				"hosts and the network between them let UDP to that port pass, and that weir " +
				"peer list here shows the key that weir peer key prints there; if the peer is " +
				"gone for good: weir peer remove " + name})
	}
	if more > 0 {
		all = append(all, api.Problem{What: fmt.Sprintf("%d more peers do not answer", more),
			Advice: "weir peer list shows when each did last"})
	}
	return all
}
