package kernel

import (
	"fmt"
	"time"
)

// Stats report how full the tables are, and the work of the sweep.
type Stats struct {
	// places in use, live or not yet swept: one for a state, two more for a translated one
	States, MaxStates     int
	HalfOpen, MaxHalfOpen int // of these, half-open
	MaxPerSource          int // of the half-open, of one source
	Translations          Translations
	Created               uint64
	Removed               map[string]uint64 // by why
	Lost                  uint64            // events that were not read in time
	// answers (resets, ICMP errors) that could not be made, were too many, or may have to be
	// encrypted by an IPsec policy
	Unanswered uint64
	// packets of rules with limit-rate that found no place for a bucket of their own, and were
	// counted in the one that such packets of their rule share
	RatesFull uint64
	Sweep     Sweep
	Cookies   Cookies
}

// Translations report how many flows are translated, and how many were evicted or not made.
type Translations struct {
	Now, Max, MaxPerPod int
	Made                uint64
	Evicted             uint64 // evicted for another: no port or no place was free
}

// Sweep reports the work of the clock hand over the state table.
type Sweep struct {
	Ticks uint32
	Pass  time.Duration // what the last pass over the whole table took
	// no expired state is older than that: a pass, or longer when the sweep stands still
	Lag     time.Duration
	Longest time.Duration // work of the longest tick
	Work    time.Duration // of all ticks
	Removed uint64
}

// removals are the names of enum removal of bpf/lib/consts.h.
var removals = [...]string{"expired", "recycled", "reclaimed", "rule", "deleted", "duplicate",
	"source"}

// Stats returns the present numbers.
func (e *Engine) Stats() (Stats, error) {
	var g weirGauge
	if err := e.objects.Gauges.Lookup(uint32(0), &g); err != nil {
		return Stats{}, fmt.Errorf("read the number of states: %w", err)
	}
	var h weirClockHand
	if err := e.objects.ClockHands.Lookup(uint32(0), &h); err != nil {
		return Stats{}, fmt.Errorf("read the state of the sweep: %w", err)
	}
	each, err := e.cpus()
	if err != nil {
		return Stats{}, err
	}
	e.mu.Lock()
	c := e.config
	e.mu.Unlock()
	s := Stats{
		States: int(g.States), HalfOpen: int(g.HalfOpen), MaxStates: int(c.MaxStates),
		MaxHalfOpen:  int(c.MaxHalfOpen),
		MaxPerSource: int(c.MaxSource), Removed: map[string]uint64{},
		Sweep: Sweep{
			Ticks: h.Ticks, Pass: time.Duration(h.PassTook), Longest: time.Duration(h.Longest),
			Work: time.Duration(h.Worked), Removed: h.Gone,
		},
		Translations: Translations{
			Now: int(g.Nats), Max: int(c.MaxNats), MaxPerPod: int(c.MaxPodNats), Made: g.NatsMade,
			Evicted: g.NatsEvicted,
		},
		Cookies: Cookies{Impossible: e.noCookies, On: g.Cookies == cookiesOn,
			TimesOn: int(g.CookieTurns), Sent: g.CookiesSent, Redeemed: g.CookiesKept},
	}
	if h.PassBegan != 0 {
		s.Sweep.Lag = max(s.Sweep.Pass, time.Duration(e.now()-h.PassBegan))
	}
	for i := range each {
		s.States += int(each[i].Pending)
		s.Created += each[i].Created
		s.Lost += each[i].Lost
		s.Unanswered += each[i].Unanswered
		s.RatesFull += each[i].RatesFull
		for why, name := range removals {
			s.Removed[name] += each[i].Removed[why]
		}
	}
	return s, nil
}
