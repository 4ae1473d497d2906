package server

import (
	"slices"
	"sort"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// position is the segment that a connection gets next.
type position struct {
	next     uint64
	counted  uint64 // the end of the log at which it was counted as current
	revision int64  // of what it has, if that is newer than what the client knows; or 0
	exact    bool   // the client has what was before that segment, and nothing of the segment
}

// resume returns where a client continues. ok is false if the log does not have what it needs, or
// if the client has other content than the store had at that revision. ahead means that the client
// has a revision that weir-store does not have yet.
func (s *state) resume(f wire.Follow) (p position, ok, ahead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copy.Sum() == f.Sum {
		return position{next: s.nextLocked(), revision: s.copy.Revision}, true, false
	}
	if f.Revision > s.copy.Revision {
		return p, false, true
	}
	after := sort.Search(len(s.marks), func(i int) bool {
		return s.marks[i].revision > f.Revision
	})
	if after == 0 || s.marks[after-1].sum != f.Sum {
		return p, false, false
	}
	if after == len(s.marks) {
		return position{next: s.nextLocked()}, true, false
	}
	return position{next: s.marks[after].segment}, true, false
}

const (
	// perTurn is how many segments a connection gets one by one.
	perTurn = 16
	// maxLag is how many segments a connection may be behind before it gets them merged.
	maxLag = 64
	// maxMerged is how many merged segments are kept for others: each may be as large as the log.
	maxMerged = 4
)

// take returns the segments that a connection gets next, and moves it forward. There are none, and
// wait is set, when there is nothing: wait is closed when there is. lost means that the log has
// forgotten what the connection needs.
//
// A connection that is far behind gets what changed since then as one batch of the newest values.
// Where that begins is rounded down, so that all that are behind share a few of them: a change that
// a client has already is the same again, or newer.
func (s *state) take(p *position) (segments []*segment, wait <-chan struct{}, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.nextLocked()
	switch {
	case p.next < s.first:
		return nil, nil, true
	case p.next == next:
		if p.counted != next {
			p.counted = next
			s.current++
		}
		return nil, s.published, false
	case next-p.next <= maxLag:
		from := p.next - s.first
		to := min(from+perTurn, uint64(len(s.segments)))
		p.next = s.first + to
		// A copy: the log clears its places while a slow connection writes.
		return slices.Clone(s.segments[from:to]), nil, false
	}
	from := max(p.next/maxLag*maxLag, s.first)
	p.next = next
	if g := s.merged[from]; g != nil {
		return []*segment{g}, nil, false
	}
	g := &segment{}
	for _, one := range s.segments[from-s.first:] {
		g.changes = append(g.changes, one.changes...)
		g.revision = one.revision
		g.size += one.size
	}
	if g.bytes = g.size; len(s.merged) >= maxMerged {
		clear(s.merged)
	}
	s.merged[from] = g
	return []*segment{g}, nil, false
}

// Buckets are packed in groups, which pack better, and alone.
const (
	groupSize = 16
	groups    = store.Buckets / groupSize
)

// part is a bucket, or a group of them, packed once for all connections.
type part struct {
	buckets []wire.Bucket
	packed  []byte
	busy    chan struct{} // closed when it is packed
	block
}

// difference returns the parts of the copy that differ from a client's digests, the revision, and
// where the client continues afterwards.
func (s *state) difference(have *wire.Digests) (parts []*part, revision int64, p position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range groups {
		var differ []int
		filled := 0
		for i := g * groupSize; i < (g+1)*groupSize; i++ {
			if s.copy.Digest(i) != have[i] {
				differ = append(differ, i)
			}
			if s.copy.Digest(i) != (store.Digest{}) {
				filled++
			}
		}
		if len(differ) > 1 && 2*len(differ) > filled {
			parts = append(parts, s.partLocked(&s.groups[g], g*groupSize, groupSize))
			continue
		}
		for _, i := range differ {
			parts = append(parts, s.partLocked(&s.buckets[i], i, 1))
		}
	}
	return parts, s.copy.Revision, position{next: s.nextLocked()}
}

func (s *state) partLocked(at **part, first, n int) *part {
	if *at == nil {
		k := &part{busy: make(chan struct{})}
		for i := first; i < first+n; i++ {
			k.buckets = append(k.buckets, wire.Bucket{Index: i, Entries: s.copy.Bucket(i)})
		}
		go func() {
			k.packed = wire.CopyParts(k.buckets)
			k.buckets = nil
			close(k.busy)
			s.unsent.packed(&k.block, len(k.packed))
		}()
		*at = k
	}
	return *at
}

// frames returns the frames of a part.
func (k *part) frames() []byte {
	<-k.busy
	return k.packed
}
