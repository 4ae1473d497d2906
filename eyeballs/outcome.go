package eyeballs

import (
	"slices"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/internal/race"
	"github.com/weirnet/weir/eyeballs/internal/rfc6724"
)

// sortable is an endpoint with its sort key.
type sortable struct {
	ep  race.Endpoint
	key rfc6724.Key
}

// sort puts endpoints in the order of RFC 6724, with what the history knows.
func (r *run) sort(eps []race.Endpoint) {
	r.keys = r.keys[:0]
	for _, ep := range eps {
		c := rfc6724.Candidate{Dst: ep.Known, Src: r.view.source(ep.Addr.Addr())}
		c.Deprecated = r.view.deprecated[c.Src]
		if r.hasEntry {
			c.Unusable = r.entry.isDown(ep.Addr.Addr(), r.begin)
			c.RTT = r.entry.rtt(ep.Addr.Addr())
		}
		r.keys = append(r.keys, sortable{ep, rfc6724.KeyOf(c)})
	}
	slices.SortStableFunc(r.keys, func(a, b sortable) int { return a.key.Compare(&b.key) })
	for i := range r.keys {
		eps[i] = r.keys[i].ep
	}
}

// remember stores in the history what a won race showed. An address is down if it was tried before
// the winner and its attempt lasted at least race.MinAttemptDelay.
func (r *run) remember() {
	won := &r.attempts[r.winner]
	outcomes := make([]outcome, 0, len(r.attempts))
	for i := range r.attempts {
		a := &r.attempts[i]
		o := outcome{addr: a.addr.Addr(), won: i == r.winner}
		if a.connected > 0 {
			o.rtt = a.connected - a.start
		}
		o.down = !o.won && a.end-a.start >= race.MinAttemptDelay && i < r.winner
		outcomes = append(outcomes, o)
	}
	v4 := won.addr.Addr().Is4()
	r.d.history().record(&result{network: r.view.id, address: r.address, outcomes: outcomes,
		unresponsiveV4: r.outstanding(dns.A) && !v4, unresponsiveV6: r.outstanding(dns.AAAA) && v4,
		at: r.begin})
}

// outstanding reports whether a question about the name itself has no answer yet.
func (r *run) outstanding(t dns.Type) bool { return r.queried&^r.answered&t != 0 }

// lost makes the error of a race that was not won.
func (r *run) lost(took time.Duration) *Error {
	e := &Error{Network: r.network, Address: r.address, Elapsed: took, Cause: r.cause,
		Lookups: r.lookups}
	for i := range r.attempts {
		a := &r.attempts[i]
		end, err := a.end, a.err
		if !a.ended {
			end, err = took, errNoAnswer
		}
		e.Attempts = append(e.Attempts, Attempt{Addr: a.addr, Stage: a.stage, Start: a.start,
			Duration: end - a.start, Err: err})
	}
	// Questions without an answer explain a wait.
	for t := dns.A; t <= dns.AAAA; t <<= 1 {
		if r.outstanding(t) {
			e.Lookups = append(e.Lookups,
				Lookup{Name: r.host, Type: t, At: took, Err: errNoAnswer})
		}
	}
	return e
}
