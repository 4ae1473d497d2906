package proxy

import (
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/observe"
)

// Dials counts the events of a Dialer's Trace. The zero value is ready for use; its methods may be
// called from any goroutine.
type Dials struct {
	// by family (0 is IPv4) and by winner (0 is the first address that was tried)
	won                          [2][2]atomic.Uint64
	lost                         atomic.Uint64
	connected, failed, cancelled atomic.Uint64
	took                         atomic.Int64 // ns, of the dials that were won
}

// Trace counts an event. It is meant for eyeballs.Dialer.Trace.
func (d *Dials) Trace(e eyeballs.Event) {
	switch e.Kind {
	case eyeballs.EventFailed:
		d.failed.Add(1)
	case eyeballs.EventCancelled:
		d.cancelled.Add(1)
	case eyeballs.EventWon:
		d.connected.Add(1) // EventConnected comes only before a handshake, which may fail
		family, other := 0, 0
		if e.Addr.Addr().Unmap().Is6() {
			family = 1
		}
		if e.Attempt > 0 {
			other = 1
		}
		d.won[family][other].Add(1)
		d.took.Add(int64(e.At))
	case eyeballs.EventLost:
		d.lost.Add(1)
	}
}

// Metrics returns the counters as weir_dial_*.
func (d *Dials) Metrics() []observe.Metric {
	races := observe.Metric{Name: "weir_dial_races_total", Type: observe.Counter,
		Help: "Successful dials, by family and by the address that won: the first one tried, " +
			"or another."}
	for family, word := range [...]string{"ipv4", "ipv6"} {
		for i, winner := range [...]string{"first", "other"} {
			races.Add(float64(d.won[family][i].Load()), "family", word, "winner", winner)
		}
	}
	attempts := observe.Metric{Name: "weir_dial_attempts_total", Type: observe.Counter,
		Help: "Attempts to connect, by outcome."}
	attempts.Add(float64(d.connected.Load()), "outcome", "connected")
	attempts.Add(float64(d.failed.Load()), "outcome", "failed")
	attempts.Add(float64(d.cancelled.Load()), "outcome", "cancelled")
	return []observe.Metric{races, attempts,
		observe.NewCounter("weir_dial_failures_total", "Failed dials.", d.lost.Load()),
		observe.NewCounter("weir_dial_seconds_total", "Time that successful dials took.",
			time.Duration(d.took.Load()).Seconds()),
	}
}

// Metrics returns the counters of the server as weir_proxy_*.
func (s *Server) Metrics() []observe.Metric {
	st := s.Stats()
	requests := observe.Metric{Name: "weir_proxy_requests_total", Type: observe.Counter,
		Help: "Requests of clients, by kind."}
	requests.Add(float64(st.Connects), "kind", "connect")
	requests.Add(float64(st.Requests), "kind", "http")
	requests.Add(float64(st.Associations), "kind", "associate")
	refused := observe.Metric{Name: "weir_proxy_refused_total", Type: observe.Counter,
		Help: "Refused clients and requests, by reason."}
	refused.Add(float64(st.TurnedAway), "reason", "too_many")
	refused.Add(float64(st.BadHandshakes), "reason", "not_understood")
	refused.Add(float64(st.Denied), "reason", "denied")
	refused.Add(float64(st.Failed), "reason", "unreachable")
	return []observe.Metric{requests, refused,
		observe.NewGauge("weir_proxy_clients", "Connected clients.", st.Clients),
		observe.NewCounter("weir_proxy_clients_total", "Clients that have connected.", st.Accepted),
		observe.NewCounter("weir_proxy_bytes_total", "Bytes passed on, in both directions.",
			st.BytesRelayed),
		observe.NewCounter("weir_proxy_idle_closed_total",
			"Connections closed because they were idle.", st.IdleClosed),
		observe.NewCounter("weir_proxy_datagrams_dropped_total",
			"Datagrams that were not passed on.", st.DatagramsDropped),
	}
}
