package soft

import (
	"runtime"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// shard is the part of the engine's states and counters that one worker owns. Whoever holds it is
// its only writer: the worker for a batch of packets, another worker that has met a packet of a
// flow of this shard, or the control side for a moment. The packet path itself takes no lock.
type shard struct {
	held atomic.Uint32
	_    [60]byte // the word that others spin on shares no line with what the holder writes

	engine    *Engine
	index     int
	many      bool // there are other shards
	cfg       *config
	rules     []counter                             // by slot
	decisions [firewall.NumDecisions]firewall.Count // by Decision.Index
	grown     table                                 // states that have proved themselves
	ring      ring
	embryo    table // half-open states: when a place is wanted, the oldest of its sets goes
	pending   int   // states not yet counted in engine.states
	cache     [trackCache]cachedTrack
	heir      *cachedTrack // of the state for which room is being made: nobody counts it there yet
	live      [256]uint32  // states by protocol
	hash      uint64       // what quick has computed of a packet whose state is absent
	moves     uint32       // counts everything that makes a pointer to an entry stale
	recent    recent
	decided   decided
	resets    []Probe // of connections that were cut, for Tick to hand out
}

// counter counts what a rule of this shard matched.
type counter struct {
	packets, bytes uint64
	last           int64
}

// newCounters returns the counters of n rules. What lies behind them in memory, perhaps those of
// the next shard, shares no line with them.
func newCounters(n int) []counter {
	const apart = 6 // more than the two lines that are fetched together
	return make([]counter, n+apart)[:n]
}

// hold takes the shard.
func (s *shard) hold() {
	for spins := 0; !s.held.CompareAndSwap(0, 1); spins++ {
		if spins > 100 {
			runtime.Gosched()
		}
	}
}

// release gives the shard back.
func (s *shard) release() { s.held.Store(0) }

// count counts a match of a rule.
func (s *shard) count(slot int, bytes uint32, now int64) {
	c := &s.rules[slot]
	c.packets++
	c.bytes += uint64(bytes)
	c.last = now
}

// decide counts what became of a packet.
func (s *shard) decide(dir firewall.Direction, v *firewall.Verdict, bytes uint32) {
	c := &s.decisions[firewall.Decision{Dir: dir, Pass: v.Pass,
		Reason: v.Reason}.Index()&(firewall.NumDecisions-1)]
	c.Packets++
	c.Bytes += uint64(bytes)
}

// find looks a key up in both pools.
func (s *shard) find(k *flow.Key, h uint64) (*table, ref) {
	if r := s.grown.find(k, h); r != noRef {
		return &s.grown, r
	}
	if r := s.embryo.find(k, h); r != noRef {
		return &s.embryo, r
	}
	return nil, noRef
}

// room finds a free place for a new state, or says why there is none. Expired and closed states of
// the two candidate sets make room, and a half-open state drives out the oldest half-open one.
// Established ones stay.
func (s *shard) room(halfOpen bool, h uint64, now int64) (*table, ref, firewall.Reason) {
	t := &s.grown
	if halfOpen {
		t = &s.embryo
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
	if r == noRef && !s.full() && !halfOpen {
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

// reclaim ends a state of the candidate sets whose place can be had: one that has expired or whose
// rule is gone, else a closed one.
func (s *shard) reclaim(t *table, h uint64, now int64) ref {
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
func (s *shard) evict(t *table, h uint64, now int64) ref {
	r := t.soonest(h)
	if r != noRef {
		s.end(t, r, now)
	}
	return r
}

// over reports whether a state has expired or lost its rule.
func (s *shard) over(e *entry, st *flow.State, now int64) bool {
	return s.cfg.slotOf(e.rule) < 0 || now > st.Deadline(&s.cfg.opts.Timeouts)
}

// plan notes when sweep has to look at a state next: when it expires, or when keepalive begins to
// ask. Packets that prolong its life until then need not write it down anew.
func (s *shard) plan(t *table, r ref, st *flow.State, now int64) {
	at := st.Deadline(&s.cfg.opts.Timeouts)
	if st.Proto == packet.ProtoTCP && st.Phase() == flow.Established {
		at = min(at, max(now, at-int64(keepaliveLast)))
	}
	t.visits[r] = min(uint32(uint64(at)>>visitUnit), never-1)
}

// phase follows a state into a new phase: one that has proved itself moves to the pool of such, one
// that is over leaves its track.
func (s *shard) phase(t *table, r ref, st *flow.State, is flow.Phase, now int64) {
	s.plan(t, r, st, now)
	if !is.HalfOpen() {
		s.hatched(&t.entries[r])
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
	if t != &s.embryo {
		return
	}
	e := &t.entries[r]
	k := e.key()
	h := hash(&k, &t.seed)
	to := s.grown.free(h)
	if to == noRef {
		to = s.reclaim(&s.grown, h, now)
	}
	if to == noRef {
		to = s.grown.move(h)
	}
	if to == noRef {
		return // it stays where it is, and tries again when its phase next changes
	}
	_, _, tag := s.grown.places(h)
	s.grown.entries[to] = *e
	s.grown.entries[to].id = e.id&^(0xff<<idTag) | uint64(tag)<<idTag
	s.grown.created[to], s.grown.visits[to], s.grown.eras[to] = t.created[r], t.visits[r], t.eras[r]
	s.grown.setTag(to, tag)
	s.grown.used++
	s.moves++
	t.remove(r)
}

// end removes a state.
func (s *shard) end(t *table, r ref, now int64) {
	e := &t.entries[r]
	if s.engine.onEvent != nil {
		s.ended(t, r, now)
	}
	s.leaveTrack(t, r)
	e.track = noTrack
	s.hatched(e)
	s.live[e.proto()]--
	s.moves++
	t.remove(r)
	s.counted(-1)
}

// endOrphans ends the half-open states whose rule is gone at once, since they count for their
// sources. The others, which are more, go with the sweep.
func (s *shard) endOrphans() {
	t := &s.embryo
	t.each(func(r ref) {
		if e := &t.entries[r]; s.cfg.slotOf(e.rule) < 0 {
			var st flow.State
			e.load(&st)
			s.end(t, r, st.Last())
		}
	})
}

// full reports whether the engine holds as many states as it may, as far as this shard can know.
func (s *shard) full() bool {
	return s.engine.states.Load()+int64(s.pending) >= int64(s.engine.opts.MaxStates)
}

// counted adds to the number of states. Shards tell the engine in batches of at most a twentieth of
// the maximum shared among them, so that together they exceed it by no more than 5 %. A single
// shard need tell nobody.
func (s *shard) counted(n int) {
	s.pending += n
	if s.many && (s.pending > s.engine.batch || -s.pending > s.engine.batch) {
		s.engine.states.Add(int64(s.pending))
		s.pending = 0
	}
}

// sweep ends the states of the next sets of a table that have expired or whose rule is gone. alive,
// which may be nil, is called for those that keepalive may have to ask.
func (s *shard) sweep(t *table, sets int, now int64, alive func(*entry, *flow.State)) {
	unit := uint32(uint64(now) >> visitUnit)
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
			s.plan(t, r, &st, now)
		}
		if t.purge > 0 {
			t.purge--
		}
		if t.hand++; t.hand == len(t.tags) {
			t.hand = 0
		}
	}
}
