package soft

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// shard is the part of the engine's states and counters that one worker owns. Its holder is its
// only writer. That is the worker for a batch of packets, another worker with a packet of a flow of
// this shard, or a control call for a moment. The packet path takes no other lock.
type shard struct {
	held atomic.Uint32
	_    [60]byte // keeps the word that others spin on apart from the lines that the holder writes

	engine      *Engine
	index       int
	many        bool // there are other shards
	cfg         *config
	rules       []counter                             // by slot
	decisions   [firewall.NumDecisions]firewall.Count // by Decision.Index
	established table                                 // established states
	ring        ring
	halfOpen    table // half-open states; a new one evicts the oldest of its sets
	pending     int   // states not yet added to engine.states
	cache       [trackCache]cachedTrack
	// the track of the state that is being created, which does not count it yet
	successor *cachedTrack
	live      [256]uint32 // states by protocol
	hash      uint64      // the hash of a packet for which fastPath has found no state
	moves     uint32      // changes whenever a pointer to an entry becomes stale
	lastState lastState
	hints     [hints]*entry
	lastRule  lastRule
	resets    []Probe  // of connections that DeleteStates has ended, for Tick to send
	visiting  []*visit // of all states: meanwhile these keep their places (table.move)
}

// counter counts the packets of this shard that a rule matched.
type counter struct {
	packets, bytes uint64
	last           time.Duration
}

// newCounters returns the counters of n rules. What follows them in memory, perhaps those of the
// next shard, does not share a cache line with them.
func newCounters(n int) []counter {
	const apart = 6 // more than the two lines that are fetched together
	return make([]counter, n+apart)[:n]
}

// hold takes the shard.
func (s *shard) hold() {
	if !s.held.CompareAndSwap(0, 1) {
		s.wait()
	}
}

// wait takes the shard when its holder releases it.
func (s *shard) wait() {
	for spins := 0; !s.held.CompareAndSwap(0, 1); spins++ {
		if spins > 100 {
			runtime.Gosched()
		}
	}
}

// release gives the shard back.
func (s *shard) release() { s.held.Store(0) }

// count counts a match of a rule.
func (s *shard) count(slot int, bytes uint32, now time.Duration) {
	c := &s.rules[slot]
	c.packets++
	c.bytes += uint64(bytes)
	c.last = now
}

// decide counts a verdict.
func (s *shard) decide(dir firewall.Direction, v *firewall.Verdict, bytes uint32) {
	c := &s.decisions[firewall.Decision{Dir: dir, Pass: v.Pass,
		Reason: v.Reason}.Index()&(firewall.NumDecisions-1)]
	c.Packets++
	c.Bytes += uint64(bytes)
}

// find looks a key up in both pools.
func (s *shard) find(k *flow.Key, h uint64) (*table, ref) {
	if r := s.established.find(k, h); r != noRef {
		return &s.established, r
	}
	if r := s.halfOpen.find(k, h); r != noRef {
		return &s.halfOpen, r
	}
	return nil, noRef
}

// reserve finds a free entry for a new state, or returns the reason why there is none. Expired and
// closed states of the two candidate sets are evicted, and a half-open state evicts the oldest
// half-open one. Established ones stay.
func (s *shard) reserve(halfOpen bool, h uint64, now time.Duration) (*table, ref, firewall.Reason) {
	t := &s.established
	if halfOpen {
		t = &s.halfOpen
	}
	r := noRef
	if !s.full() {
		r = t.free(h)
	}
	if r == noRef {
		if halfOpen {
			r = s.evict(t, h, now)
		} else {
			r = s.reclaim(t, h, now)
		}
	}
	if r == noRef && !s.full() && !halfOpen && len(s.visiting) == 0 {
		r = t.move(h)
		s.moves++
	}
	if r == noRef {
		if halfOpen && !s.full() {
			return nil, noRef, firewall.ReasonHalfOpenFull
		}
		return nil, noRef, firewall.ReasonStatesFull
	}
	s.counted(1)
	return t, r, firewall.ReasonRule
}

// reclaim ends a state of the candidate sets to free its entry: one that has expired or whose rule
// is gone, else a closed one.
func (s *shard) reclaim(t *table, h uint64, now time.Duration) ref {
	a, b, _ := t.places(h)
	best, closed := noRef, false
	for _, set := range [2]int{a, b} {
		w := t.tags[set]
		for i := range ways {
			if w>>(8*i)&0xff == 0 {
				continue
			}
			r := ref(set*ways + i)
			var st flow.State
			t.entries[r].load(&st)
			switch {
			case s.over(&t.entries[r], &st, now):
				s.end(t, r, now)
				return r
			case !closed && st.Phase().Over():
				best, closed = r, true
			}
		}
	}
	if best != noRef {
		s.end(t, best, now)
	}
	return best
}

// evict ends the state of the candidate sets that would be the first to expire.
func (s *shard) evict(t *table, h uint64, now time.Duration) ref {
	r := t.soonest(h)
	if r != noRef {
		s.end(t, r, now)
	}
	return r
}

// over reports whether a state has expired or lost its rule.
func (s *shard) over(e *entry, st *flow.State, now time.Duration) bool {
	return s.cfg.slotOf(e.rule) < 0 || now > st.Deadline(&s.cfg.opts.Timeouts)
}

// schedule sets the time at which sweep visits a state next: when it expires, or when its keepalive
// probes begin. Packets that prolong its life until then need not set it again.
func (s *shard) schedule(t *table, r ref, st *flow.State, now time.Duration) {
	at := st.Deadline(&s.cfg.opts.Timeouts)
	if st.Proto == packet.ProtoTCP && st.Phase() == flow.PhaseEstablished {
		at = min(at, max(now, at-keepaliveLast))
	}
	t.visits[r] = visitOf(at)
}

// phase follows a state into a new phase: one that is established moves to the table of established
// states, one that is over leaves its track.
func (s *shard) phase(t *table, r ref, st *flow.State, is flow.Phase, now time.Duration) {
	s.schedule(t, r, st, now)
	if !is.HalfOpen() {
		s.promoted(&t.entries[r])
	}
	if is.Over() {
		e := &t.entries[r]
		s.leaveTrack(t, r)
		e.track = noTrack
		return
	}
	if is.HalfOpen() {
		return
	}
	if !s.keepTrack(t, r) {
		s.end(t, r, now)
		return
	}
	if t != &s.halfOpen {
		return
	}
	e := &t.entries[r]
	k := e.key()
	h := hash(&k, &t.seed)
	to := s.established.free(h)
	if to == noRef {
		to = s.reclaim(&s.established, h, now)
	}
	if to == noRef && len(s.visiting) == 0 {
		to = s.established.move(h)
	}
	if to == noRef {
		return // it stays where it is until its phase changes again
	}
	_, _, tag := s.established.places(h)
	s.established.entries[to] = *e
	s.established.entries[to].id = e.id&^(0xff<<idTag) | uint64(tag)<<idTag
	s.established.created[to], s.established.visits[to], s.established.eras[to] = t.created[r],
		t.visits[r], t.eras[r]
	s.established.setTag(to, tag)
	s.established.used++
	s.moves++
	for _, v := range s.visiting {
		v.established(s, r, to)
	}
	t.remove(r)
}

// end removes a state.
func (s *shard) end(t *table, r ref, now time.Duration) {
	e := &t.entries[r]
	if s.engine.onEvent != nil {
		s.ended(t, r, now)
	}
	s.leaveTrack(t, r)
	e.track = noTrack
	s.promoted(e)
	s.live[e.proto()]--
	s.moves++
	t.remove(r)
	s.counted(-1)
}

// endOrphans ends the half-open states whose rule is gone at once, since they count for their
// sources. The others, which are more, go with the sweep.
func (s *shard) endOrphans() {
	t := &s.halfOpen
	t.each(func(r ref) {
		if e := &t.entries[r]; s.cfg.slotOf(e.rule) < 0 {
			var st flow.State
			e.load(&st)
			s.end(t, r, st.Last())
		}
	})
}

// full reports whether the engine holds as many states as it may, as far as this shard knows.
func (s *shard) full() bool {
	return s.engine.states.Load()+int64(s.pending) >= int64(s.engine.opts.MaxStates)
}

// counted adds to the number of states. Shards add to the engine's number in batches. All batches
// together are at most a twentieth of the maximum, so that it is exceeded by no more than 5 %. A
// single shard has no need to.
func (s *shard) counted(n int) {
	s.pending += n
	if s.many && (s.pending > s.engine.batch || -s.pending > s.engine.batch) {
		s.engine.states.Add(int64(s.pending))
		s.pending = 0
	}
}

// sweep ends the states of the next sets of a table that have expired or whose rule is gone. alive,
// which may be nil, is called for those that may need keepalive probes.
func (s *shard) sweep(t *table, sets int, now time.Duration, alive func(*entry, *flow.State)) {
	unit := visitOf(now)
	for range min(sets, len(t.tags)) {
		w := t.tags[t.hand]
		for i, visit := range t.visits[t.hand*ways : (t.hand+1)*ways] {
			if w>>(8*i)&0xff == 0 || visit > unit && t.purge == 0 {
				continue
			}
			r := ref(t.hand*ways + i)
			e := &t.entries[r]
			var st flow.State
			e.load(&st)
			if s.over(e, &st, now) {
				s.end(t, r, now)
				continue
			}
			if alive != nil {
				alive(e, &st)
			}
			s.schedule(t, r, &st, now)
		}
		if t.purge > 0 {
			t.purge--
		}
		if t.hand++; t.hand == len(t.tags) {
			t.hand = 0
		}
	}
}
