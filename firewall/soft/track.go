package soft

import (
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/rule"
)

// Tracks count the live states of limit rules, one count per rule and masked tuple. There are two tiers: the shared one holds the
// counts, which change by atomic operations; each shard has a small cache of where they are, so that the shared index and
// its lock are needed only for tuples that the shard has not met lately.

// trackKey names what is counted.
type trackKey struct {
	src, dst [16]byte
	ports    uint32
	rule     uint32
	proto    uint8
}

// track is a count. While count is above 0 the track belongs to its key; at 0 it may be given to another, and era changes.
type track struct {
	count atomic.Int32
	era   atomic.Uint32
	key   trackKey // guarded by tracks.mu
}

// tracks is the shared tier.
type tracks struct {
	mu    sync.Mutex
	index map[trackKey]uint32
	all   []track
	next  uint32 // the next track that was never used
	hand  uint32 // where the search for an unused one goes on
}

// noTrack is entry.track of a state that nothing counts.
const noTrack = ^uint32(0)

// trackCache is the number of entries of a shard's cache.
const trackCache = 256

// cachedTrack remembers the track of a key.
type cachedTrack struct {
	key   trackKey
	track uint32
	era   uint32
	valid bool
}

func newTracks(n int) *tracks {
	return &tracks{index: map[trackKey]uint32{}, all: make([]track, max(1, n))}
}

// track finds the track of the packet's tuple for a rule, in the shard's cache from now on. It returns nil when the limit is reached, or when
// there is no room for another track.
func (j *job) track(slot int, code *rule.Code) *cachedTrack {
	k := j.trackKey(code)
	k.rule = j.cfg.ids[slot]
	ts := j.sh.engine.tracks
	c := &j.sh.cache[k.slot()]
	for !c.valid || c.key != k || !ts.belongs(c) {
		i, era, ok := ts.get(k)
		if !ok {
			return nil
		}
		*c = cachedTrack{key: k, track: i, era: era, valid: true}
	}
	if ts.all[c.track].count.Load() >= int32(code.Limit) {
		return nil
	}
	return c
}

// acquire counts one more state of the tuple whose track is c, or reports that the limit is reached.
func (j *job) acquire(c *cachedTrack, slot int, code *rule.Code) bool {
	for {
		switch j.sh.engine.tracks.add(c.track, c.era, code.Limit) {
		case trackCounted:
			return true
		case trackFull:
			return false
		}
		if j.track(slot, code) == nil {
			return false
		}
	}
}

// leaveTrack counts one state less, unless it makes room for one of the same track: that one takes its place there. So a flood
// into one track, in which every state drives out another, writes nothing that workers share.
func (s *shard) leaveTrack(track uint32) {
	if s.heir != nil && s.heir.track == track {
		s.heir = nil
		return
	}
	s.engine.tracks.release(track)
}

// reached reports whether the packet's track is at its limit, in a dry run.
func (j *job) reached(slot int, code *rule.Code) bool {
	k := j.trackKey(code)
	k.rule = j.cfg.ids[slot]
	ts := j.sh.engine.tracks
	ts.mu.Lock()
	defer ts.mu.Unlock()
	i, ok := ts.index[k]
	if !ok {
		return false
	}
	n := ts.all[i].count.Load()
	for _, gone := range j.dry.ended {
		if gone == i {
			n--
		}
	}
	return n >= int32(code.Limit)
}

// trackKey returns the parts of the packet's tuple that the rule counts by.
func (j *job) trackKey(code *rule.Code) trackKey {
	k := trackKey{proto: j.key.Proto}
	src, dst := j.key.Ports>>16, j.key.Ports&0xffff
	if j.dir == flow.FromHigh {
		src, dst = dst, src
	}
	if code.Mask&rule.LimitSrcAddr != 0 {
		k.src = j.p.SrcIP
	}
	if code.Mask&rule.LimitDstAddr != 0 {
		k.dst = j.p.DstIP
	}
	if code.Mask&rule.LimitSrcPort != 0 {
		k.ports |= src << 16
	}
	if code.Mask&rule.LimitDstPort != 0 {
		k.ports |= dst
	}
	return k
}

// slot returns the place of a key in a shard's cache.
func (k *trackKey) slot() uint8 {
	srcHi, srcLo := halves(&k.src)
	dstHi, dstLo := halves(&k.dst)
	h := srcHi ^ srcLo*0x9e3779b97f4a7c15 ^ dstHi ^ dstLo*0xc2b2ae3d27d4eb4f ^ uint64(k.ports)<<13 ^ uint64(k.rule)<<7
	h *= 0x9e3779b97f4a7c15
	return uint8(h >> 56)
}

// Results of tracks.add.
const (
	trackCounted = iota
	trackFull    // the limit is reached
	trackGone    // the track is somebody else's by now
)

// add counts one more, if the track is still that of the era.
func (ts *tracks) add(i, era, limit uint32) int {
	t := &ts.all[i]
	for {
		n := t.count.Load()
		if t.era.Load() != era || n < 0 {
			return trackGone
		}
		if uint32(n) >= limit {
			return trackFull
		}
		if !t.count.CompareAndSwap(n, n+1) {
			continue
		}
		if t.era.Load() != era { // it changed hands between the two loads
			t.count.Add(-1)
			return trackGone
		}
		return trackCounted
	}
}

// belongs reports whether a track is still that of the cached key.
func (ts *tracks) belongs(c *cachedTrack) bool {
	t := &ts.all[c.track]
	return t.count.Load() >= 0 && t.era.Load() == c.era
}

// release counts one less.
func (ts *tracks) release(i uint32) {
	if i != noTrack {
		ts.all[i].count.Add(-1)
	}
}

// get finds the track of a key in the shared tier, or makes it.
func (ts *tracks) get(k trackKey) (i, era uint32, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if i, ok = ts.index[k]; ok {
		return i, ts.all[i].era.Load(), true
	}
	if i, ok = ts.unusedLocked(); !ok {
		return 0, 0, false
	}
	t := &ts.all[i]
	t.key = k
	ts.index[k] = i
	return i, t.era.Load(), true
}

// trackSearch is how many tracks one search for an unused one looks at.
const trackSearch = 256

// unusedLocked returns a track that counts nothing.
func (ts *tracks) unusedLocked() (uint32, bool) {
	if int(ts.next) < len(ts.all) {
		ts.next++
		return ts.next - 1, true
	}
	for range min(trackSearch, len(ts.all)) {
		i := ts.hand
		if ts.hand++; int(ts.hand) == len(ts.all) {
			ts.hand = 0
		}
		t := &ts.all[i]
		// While the count is -1 nobody adds to it.
		if !t.count.CompareAndSwap(0, -1) {
			continue
		}
		t.era.Add(1)
		delete(ts.index, t.key)
		t.count.Store(0)
		return i, true
	}
	return 0, false
}
