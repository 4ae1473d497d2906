package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// What the log keeps: changes, and bytes of values and of those before, most of which the copy or
// another segment has as well.
const (
	maxChanges = 65536
	maxLog     = 64 << 20
)

// state is the copy and what changed last. Connections read it.
type state struct {
	closed chan struct{} // when the server is

	mu      sync.Mutex
	ready   chan struct{} // closed when the copy is there
	copy    *store.Copy
	heard   time.Time // of the store
	failing bool      // the watch on the store ended and did not continue yet

	// The log: segments of one or several transactions. Those from first to next-1 are kept, of
	// which all are published; open is the next one.
	first     uint64
	segments  []*segment
	open      *segment
	marks     []mark // of the transactions in the log, and of the one before
	published chan struct{}
	last      time.Time // when something was published
	timer     *time.Timer
	followers int           // connections that follow
	current   int           // of them, those that have everything that was published
	backoff   time.Duration // added to the pace while connections do not keep up
	changes   int           // in the log
	bytes     int

	buckets [store.Buckets]*part // packed; nil: changed since
	groups  [groups]*part
	unsent  *unsent             // what connections have to write of parts and segments
	merged  map[uint64]*segment // from a segment to the end of the log
}

// segment is what connections get as one batch.
type segment struct {
	revision int64
	changes  []store.Change
	before   map[string][]byte // values of its keys before it; nil: there was none
	size     int
	block

	deltas, whole frames
}

// frames are packed once for all connections.
type frames struct {
	once   sync.Once
	packed []byte
}

// frame returns the frames for a connection that has exactly what was before the segment.
func (g *segment) frame() []byte {
	g.deltas.once.Do(func() {
		changes := wire.Deltas(merge(g.changes), func(key string) []byte { return g.before[key] })
		g.deltas.packed = wire.Batches(g.revision, changes)
		g.before = nil // only this function reads it once the segment is published
	})
	return g.deltas.packed
}

// frameWhole returns the frames for a connection that may have a part of the segment already.
func (g *segment) frameWhole() []byte {
	g.whole.once.Do(func() {
		g.whole.packed = wire.Batches(g.revision, wire.WholeValues(merge(g.changes)))
	})
	return g.whole.packed
}

// add appends a transaction to the open segment. c is what was before the transaction.
func (g *segment) add(b store.Batch, c *store.Copy) {
	if g.before == nil {
		g.before = map[string][]byte{}
	}
	for _, ch := range b.Changes {
		if _, again := g.before[ch.Key]; !again {
			was, _ := c.Get(ch.Key)
			g.before[ch.Key] = was.Value // nil: there was none
			g.size += len(was.Value)
		}
		g.size += len(ch.Key) + len(ch.Value)
	}
	g.revision = b.Revision
	g.changes = append(g.changes, b.Changes...)
}

// merge keeps the last change of each key, ordered by key: once for all clients.
func merge(changes []store.Change) []store.Change {
	ordered := slices.Clone(changes)
	slices.SortStableFunc(ordered, func(a, b store.Change) int { return cmp.Compare(a.Key, b.Key) })
	kept := ordered[:0]
	for i, ch := range ordered {
		if i+1 == len(ordered) || ordered[i+1].Key != ch.Key {
			kept = append(kept, ch)
		}
	}
	return kept
}

// mark is the content after a transaction, and where its segment is.
type mark struct {
	revision int64
	sum      store.Digest
	segment  uint64 // that the transaction is part of
}

func newState() *state {
	return &state{closed: make(chan struct{}), ready: make(chan struct{}), open: &segment{},
		copy: store.NewCopy(store.Snapshot{}), published: make(chan struct{}),
		merged: map[uint64]*segment{}, unsent: newUnsent(2 * store.MaxCopy)}
}

// get returns an entry of the copy.
func (s *state) get(key string) (store.Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy.Get(key)
}

// size returns that of the copy.
func (s *state) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy.Size()
}

// revision returns that of the copy.
func (s *state) revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy.Revision
}

// progress returns the revision of the copy, and for how long the store has been silent.
func (s *state) progress() wire.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := wire.Progress{Revision: s.copy.Revision}
	if s.failing {
		p.Silent = time.Since(s.heard)
	}
	return p
}

func (s *state) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.IsZero() {
		s.heard = time.Now()
	}
	s.failing = true
}

// nextLocked is the number of the open segment.
func (s *state) nextLocked() uint64 { return s.first + uint64(len(s.segments)) }

// apply moves the copy forward and publishes the changes, now or when the pace allows it.
func (s *state) apply(b store.Batch, pace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.failing = time.Now(), false
	if b.Revision < s.copy.Revision {
		s.marks = nil // the store was put back: no revision of before means what it meant
	}
	first := false
	select {
	case <-s.ready:
	default:
		first = true // connections begin with a difference
		close(s.ready)
	}
	if first || len(b.Changes) == 0 {
		if s.copy.Apply(b); len(s.marks) == 0 {
			s.markLocked()
		}
		return
	}
	for _, ch := range b.Changes {
		i := store.BucketOf(ch.Key)
		s.buckets[i], s.groups[i/groupSize] = nil, nil
	}
	s.open.add(b, s.copy)
	s.copy.Apply(b)
	s.markLocked()
	if wait := pace + s.backoff - time.Since(s.last); wait <= 0 {
		s.publishLocked()
	} else if s.timer == nil {
		s.timer = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.publishLocked()
		})
	}
}

// markLocked notes what the copy is now.
func (s *state) markLocked() {
	s.marks = append(s.marks, mark{s.copy.Revision, s.copy.Sum(), s.nextLocked()})
}

// maxBackoff is how much longer than its pace a delivery to all may wait.
const maxBackoff = 200 * time.Millisecond

// adaptLocked makes deliveries rarer while more than a quarter of the connections has not got the
// one before: the machine is busy, and larger batches cost less than many.
func (s *state) adaptLocked() {
	if 4*(s.followers-s.current) > s.followers {
		s.backoff = min(2*s.backoff+5*time.Millisecond, maxBackoff)
	} else {
		s.backoff /= 2
	}
	s.current = 0
}

// enter counts a connection that follows, leave the end of it.
func (s *state) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers++
}

func (s *state) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers--
}

// publishLocked closes the open segment and wakes every connection.
func (s *state) publishLocked() {
	s.timer, s.last = nil, time.Now()
	if len(s.open.changes) == 0 {
		return
	}
	s.adaptLocked()
	s.open.bytes = s.open.size
	s.segments = append(s.segments, s.open)
	s.changes += len(s.open.changes)
	s.bytes += s.open.size
	s.open = &segment{}
	clear(s.merged)
	for len(s.segments) > 1 && (s.changes > maxChanges || s.bytes > maxLog) {
		s.changes -= len(s.segments[0].changes)
		s.bytes -= s.segments[0].size
		s.segments[0] = nil
		s.segments = s.segments[1:]
		s.first++
	}
	// The mark before the first segment stays: it is where that one begins.
	drop := 0
	for drop+1 < len(s.marks) && s.marks[drop+1].segment < s.first {
		drop++
	}
	s.marks = s.marks[drop:]
	close(s.published)
	s.published = make(chan struct{})
}
