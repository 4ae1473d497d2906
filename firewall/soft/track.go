package soft

import (
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// Tracks count the live states of limit rules, one count per rule and masked tuple. There are two
// tiers. The shared one holds the counts, which change by atomic operations. Each shard has a small
// cache of where they are. So the shared index and its lock are needed only for tuples that the
// shard has not met lately. When all tracks are in use, one that counts half-open states only is
// evicted. These states are counted again when they become established.

// trackKey is what a track counts.
type trackKey struct {
	src, dst [16]byte
	ports    uint32
	rule     uint32
	proto    packet.Proto
}

// track is a count of states, and of the established ones among them. While it counts established
// states, it belongs to its key. Otherwise it may be given to another key, and its era changes.
type track struct {
	held atomic.Uint64 // era << eraShift | proved << provedShift | all
	key  trackKey      // guarded by tracks.mu
}

// The parts of track.held.
const (
	provedShift = 24
	eraShift    = 48
	countMask   = 1<<provedShift - 1
	oneProved   = 1 << provedShift
)

func countOf(held uint64) uint32  { return uint32(held & countMask) }
func provedOf(held uint64) uint32 { return uint32(held >> provedShift & countMask) }
func eraOf(held uint64) uint16    { return uint16(held >> eraShift) }

// change adds to a track if it is still of an era, and reports whether it is.
func (t *track) change(era uint16, n uint64) bool {
	for {
		held := t.held.Load()
		if eraOf(held) != era {
			return false
		}
		if t.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

// tracks is the shared tier.
type tracks struct {
	mu    sync.Mutex
	index map[trackKey]uint32
	all   []track
	next  uint32 // the next track that was never used
	hand  uint32 // the clock hand: where the search for an unused one continues
}

// noTrack is entry.track of a state that no track counts.
const noTrack = ^uint32(0)

// noRule is trackKey.rule of a track of which the rule is gone.
const noRule = ^uint32(0)

// trackCache is the number of entries of a shard's cache.
const trackCache = 256

// cachedTrack is the track of a key.
type cachedTrack struct {
	key   trackKey
	track uint32
	era   uint16
	valid bool
}

func newTracks(n int) *tracks {
	return &tracks{index: map[trackKey]uint32{}, all: make([]track, max(1, n))}
}

// track finds the track of the packet's tuple for a rule, in the shard's cache from now on. It
// returns nil and the reason when the limit is reached, or when there is no space for another
// track.
func (j *job) track(slot int, code *program.Rule) (*cachedTrack, firewall.Reason) {
	k := j.trackKey(code)
	k.rule = j.cfg.ids[slot]
	c := j.sh.cached(k)
	switch {
	case c == nil:
		return nil, firewall.ReasonTracksFull
	case countOf(j.sh.engine.tracks.all[c.track].held.Load()) >= code.Limit:
		return nil, firewall.ReasonLimit
	}
	return c, firewall.ReasonRule
}

// cached returns the track of a key, which is in the shard's cache from now on, or nil when all
// tracks are in use.
func (s *shard) cached(k trackKey) *cachedTrack {
	ts := s.engine.tracks
	c := &s.cache[k.slot()]
	for !c.valid || c.key != k || eraOf(ts.all[c.track].held.Load()) != c.era {
		i, era, ok := ts.get(k, s.cfg)
		if !ok {
			return nil
		}
		*c = cachedTrack{key: k, track: i, era: era, valid: true}
	}
	return c
}

// acquire counts one more state of the tuple whose track is c, or reports that the limit is
// reached.
func (j *job) acquire(c *cachedTrack, slot int, code *program.Rule) bool {
	for {
		switch j.sh.engine.tracks.add(c.track, c.era, code.Limit, 1) {
		case trackCounted:
			return true
		case trackFull:
			return false
		}
		if again, _ := j.track(slot, code); again == nil {
			return false
		}
	}
}

// leaveTrack counts one state less, unless the state is evicted for one of the same track: that one
// takes its place in the count. So a flood into one track, in which every state evicts another,
// writes nothing that workers share.
func (s *shard) leaveTrack(t *table, r ref) {
	e := &t.entries[r]
	if e.track == noTrack {
		return
	}
	n := uint64(1)
	if e.id&infoKeeps != 0 {
		n += oneProved
		e.id &^= infoKeeps
	} else if s.successor != nil && s.successor.track == e.track && s.successor.era == t.eras[r] {
		s.successor = nil
		return
	}
	s.engine.tracks.all[e.track].change(t.eras[r], -n)
}

// keepTrack counts an established state as such in its track, which from now on cannot be given to
// another tuple. If it was given away before, the state is counted in a track of its own tuple
// again. keepTrack returns false if there is no track for it, or the limit is reached.
func (s *shard) keepTrack(t *table, r ref) bool {
	e, ts := &t.entries[r], s.engine.tracks
	if e.track == noTrack || e.id&infoKeeps != 0 {
		return true
	}
	slot := s.cfg.slotOf(e.rule)
	if !ts.all[e.track].change(t.eras[r], oneProved) {
		e.track = noTrack
		if slot < 0 {
			return true
		}
		code := &s.cfg.rules[slot]
		k := e.trackKey(code)
		k.rule = e.rule
		for done := false; !done; {
			c := s.cached(k)
			if c == nil {
				return false
			}
			switch ts.add(c.track, c.era, code.Limit, 1+oneProved) {
			case trackFull:
				return false
			case trackCounted:
				e.track, t.eras[r], done = c.track, c.era, true
			}
		}
	}
	e.id |= infoKeeps
	return true
}

// wouldLeaveTrack records in a dry run that leaveTrack would be called, for a state whose track
// still is that of its tuple.
func (j *job) wouldLeaveTrack(t *table, r ref) {
	track := t.entries[r].track
	if track != noTrack && eraOf(j.sh.engine.tracks.all[track].held.Load()) == t.eras[r] {
		j.dry.ended = append(j.dry.ended, track)
	}
}

// reached reports in a dry run whether the packet's track is at its limit.
func (j *job) reached(slot int, code *program.Rule) bool {
	k := j.trackKey(code)
	k.rule = j.cfg.ids[slot]
	ts := j.sh.engine.tracks
	ts.mu.Lock()
	defer ts.mu.Unlock()
	i, ok := ts.index[k]
	if !ok {
		return false
	}
	n := countOf(ts.all[i].held.Load())
	for _, gone := range j.dry.ended {
		if gone == i {
			n--
		}
	}
	return n >= code.Limit
}

// trackKey returns the parts of the packet's tuple that the rule counts by.
func (j *job) trackKey(code *program.Rule) trackKey {
	src, dst := j.key.Ports>>16, j.key.Ports&0xffff
	if j.dir == flow.EndHigh {
		src, dst = dst, src
	}
	return maskedKey(code, &j.key, &j.p.SrcIP, &j.p.DstIP, src, dst)
}

// trackKey returns what the rule that made an entry counts it by.
func (e *entry) trackKey(code *program.Rule) trackKey {
	k := e.key()
	src, dst := k.Ports>>16, k.Ports&0xffff
	if e.id&infoHigh != 0 {
		src, dst = dst, src
	}
	from, to := k.Ends(e.from()) // without their link
	srcIP, dstIP := from.Addr().As16(), to.Addr().As16()
	return maskedKey(code, &k, &srcIP, &dstIP, src, dst)
}

// maskedKey returns what a rule counts a flow by, whose ends are without their link.
func maskedKey(code *program.Rule, of *flow.Key, srcIP, dstIP *[16]byte, src,
	dst uint32) trackKey {
	k := trackKey{proto: of.Proto}
	if code.Mask&op.LimitSrcAddr != 0 {
		k.src = sourceOf(srcIP, of.Link())
	}
	if code.Mask&op.LimitDstAddr != 0 {
		k.dst = *dstIP
	}
	if code.Mask&op.LimitSrcPort != 0 {
		k.ports |= src << 16
	}
	if code.Mask&op.LimitDstPort != 0 {
		k.ports |= dst
	}
	return k
}

// slot returns the index of a key in a shard's cache.
func (k *trackKey) slot() uint8 {
	srcHi, srcLo := halves(&k.src)
	dstHi, dstLo := halves(&k.dst)
	h := srcHi ^ srcLo*0x9e3779b97f4a7c15 ^ dstHi ^ dstLo*0xc2b2ae3d27d4eb4f ^ uint64(k.ports)<<13 ^
		uint64(k.rule)<<7
	h *= 0x9e3779b97f4a7c15
	return uint8(h >> 56)
}

// Results of tracks.add.
const (
	trackCounted = iota
	trackFull    // the limit is reached
	trackGone    // the track belongs to another key by now
)

// add counts more, if the track is still that of the era.
func (ts *tracks) add(i uint32, era uint16, limit uint32, more uint64) int {
	t := &ts.all[i]
	for {
		held := t.held.Load()
		switch {
		case eraOf(held) != era:
			return trackGone
		case countOf(held) >= limit:
			return trackFull
		case t.held.CompareAndSwap(held, held+more):
			return trackCounted
		}
	}
}

// get finds the track of a key in the shared tier, or makes it.
func (ts *tracks) get(k trackKey, c *config) (i uint32, era uint16, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if i, ok = ts.index[k]; ok {
		return i, eraOf(ts.all[i].held.Load()), true
	}
	if i, ok = ts.unusedLocked(c); !ok {
		return 0, 0, false
	}
	t := &ts.all[i]
	t.key = k
	ts.index[k] = i
	return i, eraOf(t.held.Load()), true
}

// trackSearch is how many tracks one search for an unused one looks at.
const trackSearch = 256

// renumber gives the tracks the new numbers of their rules. Those of rules that are gone count
// nothing any more.
func (ts *tracks) renumber(c *config, numbers []uint32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	clear(ts.index)
	for i := range ts.all[:ts.next] {
		t := &ts.all[i]
		if t.key.rule == noRule || c.gone(t.key.rule) { // c knows nothing of noRule
			t.held.Store(uint64(eraOf(t.held.Load())+1) << eraShift)
			t.key.rule = noRule
			continue
		}
		t.key.rule = numbers[t.key.rule]
		ts.index[t.key] = uint32(i)
	}
}

// unusedLocked returns a track that counts nothing, or one of a rule that is gone, whose states the
// sweep has not reached yet. Without those it returns one that counts half-open states only.
func (ts *tracks) unusedLocked(c *config) (uint32, bool) {
	if int(ts.next) < len(ts.all) {
		ts.next++
		return ts.next - 1, true
	}
	for _, most := range [2]uint32{0, countMask} {
		for range min(trackSearch, len(ts.all)) {
			i := ts.hand
			if ts.hand++; int(ts.hand) == len(ts.all) {
				ts.hand = 0
			}
			t := &ts.all[i]
			held := t.held.Load()
			holding := (provedOf(held) > 0 || countOf(held) > most) && !c.gone(t.key.rule)
			if holding || !t.held.CompareAndSwap(held, uint64(eraOf(held)+1)<<eraShift) {
				continue
			}
			delete(ts.index, t.key)
			return i, true
		}
	}
	return 0, false
}
