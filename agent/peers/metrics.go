package peers

import (
	"time"

	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/overlay"
)

// Metrics are about the other nodes and the tunnel to them. Counters begin again with a tunnel that
// is made again.
func (p *Service) Metrics() ([]observe.Metric, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []overlay.PeerStatus
	var stats overlay.Stats
	ours := true // the kernel's WireGuard counts less
	if t := p.tunnel.Load(); t != nil {
		var err error
		if list, err = t.device.Peers(); err != nil {
			return nil, err
		}
		stats, ours = t.device.Stats(), t.user != nil
	}
	count := map[string]int{"unreachable": len(p.byName) - len(list)}
	for _, s := range list {
		switch {
		case p.waits[s.Name] != nil:
			count["unreachable"]++
		case s.Unencrypted:
			count["plain"]++
		case overlay.InSession(s.LastHandshake, time.Now()):
			count["connected"]++
		default:
			count["idle"]++
		}
	}
	all := observe.Metric{Name: "weir_peers", Type: observe.Gauge,
		Help: "Other nodes that this one knows, by state."}
	for _, state := range []string{"connected", "idle", "plain", "unreachable"} {
		all.Add(float64(count[state]), "state", state)
	}
	moves := observe.NewCounter("weir_peer_moves_total",
		"Changes of the endpoint in use for a peer.", stats.Moves)
	if !ours {
		return []observe.Metric{all, moves}, nil
	}
	handshakes := observe.Metric{Name: "weir_handshakes_total", Type: observe.Counter,
		Help: "Handshakes of the tunnel: begun here, those of them that were answered, and those " +
			"of peers that were accepted here."}
	handshakes.Add(float64(stats.Begun), "step", "begun")
	handshakes.Add(float64(stats.Answered), "step", "answered")
	handshakes.Add(float64(stats.Accepted), "step", "accepted")
	races := observe.Metric{Name: "weir_endpoint_races_total", Type: observe.Counter,
		Help: "Handshakes that a peer answered, by endpoint: the one tried first, or another one " +
			"because the first did not answer."}
	races.Add(float64(stats.Answered-stats.AnsweredByOther), "winner", "first")
	races.Add(float64(stats.AnsweredByOther), "winner", "other")
	waited := observe.Metric{Name: "weir_tunnel_wait_dropped_total", Type: observe.Counter,
		Help: "Packets that waited for a session of their peer and were dropped, by reason: too " +
			"many waited, or no session came in time."}
	waited.Add(float64(stats.WaitFull), "reason", "queue-full")
	waited.Add(float64(stats.WaitLate), "reason", "no-session")
	refused := observe.Metric{Name: "weir_tunnel_malformed_total", Type: observe.Counter,
		Help: "Packets into the tunnel that were dropped, by reason: their pending checksum was " +
			"not where it belongs, or they could not be cut into segments."}
	refused.Add(float64(stats.Misplaced), "reason", "checksum-place")
	refused.Add(float64(stats.Broken), "reason", "segments")
	return []observe.Metric{all, handshakes, races, moves, waited, refused,
		observe.NewCounter("weir_tunnel_send_errors_total",
			"Batches of encrypted packets that no endpoint accepted.", stats.SendErrors),
		observe.NewCounter("weir_tunnel_no_peer_total",
			"Packets into the tunnel to an address that no peer has.", stats.NoPeer),
		observe.NewCounter("weir_tunnel_spoofed_total",
			"Packets of peers that were dropped: their source is outside the peer's ranges.",
			stats.Spoofed),
		observe.NewCounter("weir_tunnel_loops_total",
			"Encrypted packets that were routed into the tunnel again.", stats.Loops),
		observe.NewCounter("weir_tunnel_send_dropped_total",
			"Datagrams dropped because the link to their peer, or another host, was too slow.",
			stats.SendFull),
		observe.NewCounter("weir_tunnel_handshakes_dropped_total",
			"Handshake messages, of any host, dropped because 1024 of them waited.",
			stats.HandshakesFull),
		observe.NewCounter("weir_tunnel_receive_dropped_total",
			"Encrypted packets dropped because they arrived faster than they were read.",
			stats.SocketDrops),
	}, nil
}
