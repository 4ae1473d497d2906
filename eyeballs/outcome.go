package eyeballs

import (
	"slices"
	"time"

	"github.com/weirnet/weir/eyeballs/race"
	"github.com/weirnet/weir/eyeballs/rfc6724"
)

// sortable is an endpoint with its key.
type sortable struct {
	ep  race.Endpoint
	key rfc6724.Key
}

// sort puts endpoints in the order of RFC 6724, with what is remembered.
func (r *run) sort(eps []race.Endpoint) {
	r.keys = r.keys[:0]
	for _, ep := range eps {
		c := rfc6724.Candidate{Dst: ep.Known, Src: r.net.source(ep.Addr.Addr())}
		c.Deprecated = r.net.deprecated[c.Src]
		if r.known {
			c.Unusable = r.place.avoid(ep.Addr.Addr(), r.begin)
			c.History = r.place.rank(ep.Addr.Addr())
		}
		r.keys = append(r.keys, sortable{ep, rfc6724.KeyOf(c)})
	}
	slices.SortStableFunc(r.keys, func(a, b sortable) int { return a.key.Compare(&b.key) })
	for i := range r.keys {
		eps[i] = r.keys[i].ep
	}
}

// remember tells the history what a won race taught. An address is dead if it
// still kept silent when the race was over although it had its chance, or failed
// only after a wait.
func (r *run) remember() {
	won := &r.attempts[r.winner]
	outcomes := make([]outcome, 0, len(r.attempts))
	for i := range r.attempts {
		a := &r.attempts[i]
		o := outcome{addr: a.addr.Addr(), won: i == r.winner}
		if a.connected > 0 {
			o.rtt = a.connected - a.start
		}
		o.dead = !o.won && a.end-a.start >= race.MinAttemptDelay && i < r.winner
		outcomes = append(outcomes, o)
	}
	mute := func(t race.Types) bool { return r.asked&t != 0 && r.answered&t == 0 }
	v4 := won.addr.Addr().Is4()
	r.d.history().record(r.net.id, r.address, outcomes, mute(race.A) && !v4, mute(race.AAAA) && v4,
		r.begin)
}

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
		e.Attempts = append(e.Attempts,
			Attempt{Addr: a.addr, Stage: a.stage, Start: a.start, Duration: end - a.start,
				Err: err})
	}
	// Questions that nobody has answered explain a wait.
	for t := race.A; t <= race.AAAA; t <<= 1 {
		if r.asked&t != 0 && r.answered&t == 0 {
			e.Lookups = append(e.Lookups, Lookup{Name: r.host, Type: t, At: took, Err: errNoAnswer})
		}
	}
	return e
}
