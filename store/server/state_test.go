package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// reader is a client without a connection: a copy, and where it is.
type reader struct {
	copy   *store.Copy
	at     *position
	deltas int // values that came as deltas
}

// frames applies what weir-store would send.
func (r *reader) frames(t *testing.T, frames []byte) {
	t.Helper()
	for from := bytes.NewReader(frames); from.Len() > 0; {
		_, body, err := wire.ReadFrame(from, wire.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		m, err := wire.DecodeBatch(body)
		if err != nil {
			t.Fatal(err)
		}
		b := store.Batch{Revision: m.Revision}
		for _, ch := range m.Changes {
			was, _ := r.copy.Get(ch.Key)
			change, err := ch.Of(was.Value)
			if err != nil {
				t.Fatalf("%s: %v", ch.Key, err)
			}
			if ch.Delta != nil {
				r.deltas++
			}
			b.Changes = append(b.Changes, change)
		}
		r.copy.Apply(b)
	}
}

// difference applies the difference.
func (r *reader) difference(t *testing.T, s *state) {
	t.Helper()
	var have wire.Digests
	for i := range have {
		have[i] = r.copy.Digest(i)
	}
	parts, revision, next := s.difference(&have)
	var changes []store.Change
	whole := map[int][]store.Entry{}
	for _, k := range parts {
		for from := bytes.NewReader(k.frames()); from.Len() > 0; {
			_, body, err := wire.ReadFrame(from, wire.MaxFrame)
			if err != nil {
				t.Fatal(err)
			}
			m, err := wire.DecodeCopy(body)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range m.Buckets {
				whole[b.Index] = append(whole[b.Index], b.Entries...)
			}
		}
	}
	for i, entries := range whole {
		c, err := r.copy.DiffBucket(i, entries)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c...)
	}
	r.copy.Apply(store.Batch{Revision: revision, Changes: changes})
	r.at = &next
}

// begin connects: it continues, or gets the difference.
func (r *reader) begin(t *testing.T, s *state) (continued bool) {
	t.Helper()
	at, ok, _ := s.resume(wire.Follow{Revision: r.copy.Revision, Sum: r.copy.Sum()})
	if !ok {
		r.difference(t, s)
		return false
	}
	r.at = &at
	return true
}

// turn takes once what there is.
func (r *reader) turn(t *testing.T, s *state) (more, merged bool) {
	t.Helper()
	from := r.at.next
	segments, wait, lost := s.take(r.at)
	if lost {
		r.difference(t, s)
		return true, false
	}
	merged = r.at.next-from > maxLag
	for _, g := range segments {
		frame := g.frameWhole
		if r.at.exact {
			frame = g.frame
		}
		r.frames(t, frame())
		r.at.exact = true
	}
	return wait == nil, merged
}

func (s *state) snapshot() store.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy.Snapshot()
}

// TestPositions: readers connect with copies of any age, take now and then, disconnect, and the
// store is put back at times. Each one that has taken everything has what the store has.
func TestPositions(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newState()
	s.apply(store.Batch{Revision: 1}, 0)
	var readers []*reader
	for range 8 {
		readers = append(readers, &reader{copy: store.NewCopy(store.Snapshot{})})
	}
	revision := int64(1)
	merges, continues := 0, 0
	for range 3000 {
		revision += 1 + random.Int64N(2)
		b := store.Batch{Revision: revision}
		key := fmt.Sprint("k", random.IntN(60))
		if _, there := s.get(key); there && random.IntN(3) == 0 {
			b.Changes = []store.Change{{Entry: store.Entry{Key: key, Revision: revision},
				Deleted: true}}
		} else {
			b.Changes = []store.Change{{Entry: store.Entry{Key: key, Revision: revision,
				Value: bytes.Repeat(fmt.Append(nil, "some text"), 20+random.IntN(4))}}}
		}
		pace := time.Duration(0)
		if random.IntN(3) == 0 {
			pace = time.Hour // it stays in the open segment
		}
		s.apply(b, pace)
		switch random.IntN(400) {
		case 0:
			revision -= min(revision-1, random.Int64N(100)) // put back
		case 1:
			s.apply(store.Batch{Revision: revision}, 0) // progress
		}
		r := readers[random.IntN(len(readers))]
		switch {
		case r.at == nil:
			if r.begin(t, s) {
				continues++
			}
		case random.IntN(40) == 0:
			r.at = nil // it disconnects and keeps its copy
		case random.IntN(4) == 0:
			for more := true; more; {
				var merged bool
				if more, merged = r.turn(t, s); merged {
					merges++
				}
			}
		}
	}
	s.mu.Lock()
	s.publishLocked()
	s.mu.Unlock()
	want := store.NewCopy(s.snapshot()).Sum()
	for i, r := range readers {
		if r.at == nil {
			r.begin(t, s)
		}
		for more := true; more; {
			more, _ = r.turn(t, s)
		}
		if r.copy.Sum() != want {
			t.Errorf("reader %d has %v", i, r.copy.Snapshot())
		}
	}
	deltas := 0
	for _, r := range readers {
		deltas += r.deltas
	}
	if merges == 0 || continues == 0 || deltas == 0 {
		t.Errorf("%d merges, %d continues, %d deltas: it tests nothing", merges, continues, deltas)
	}
}

// TestLogIsBounded: the log forgets what is too much, one that needs it gets the difference, and
// one that does not continues.
func TestLogIsBounded(t *testing.T) {
	s := newState()
	s.apply(store.Batch{Revision: 1}, 0)
	value := make([]byte, 1<<20)
	slow, fast := &reader{copy: store.NewCopy(store.Snapshot{})},
		&reader{copy: store.NewCopy(store.Snapshot{})}
	slow.begin(t, s)
	fast.begin(t, s)
	for i := range 200 {
		revision := int64(2 + i)
		s.apply(store.Batch{Revision: revision, Changes: []store.Change{{Entry: store.Entry{
			Key: "k", Value: append(value[:len(value):len(value)], byte(i)),
			Revision: revision}}}}, 0)
		if i > 190 {
			for more := true; more; {
				more, _ = fast.turn(t, s)
			}
		}
	}
	if s.bytes > maxLog || len(s.segments) > 65 || len(s.marks) > len(s.segments)+2 {
		t.Errorf("the log has %d bytes, %d segments, %d marks", s.bytes, len(s.segments),
			len(s.marks))
	}
	if _, _, lost := s.take(slow.at); !lost {
		t.Error("what was forgotten is not missed")
	}
	for more := true; more; {
		more, _ = slow.turn(t, s)
	}
	if slow.copy.Sum() != fast.copy.Sum() || slow.copy.Sum() != s.copy.Sum() {
		t.Error("the copies differ")
	}
}

// TestResumeIsExact: a client continues at a revision only with the content of that revision.
func TestResumeIsExact(t *testing.T) {
	s := newState()
	s.apply(store.Batch{Revision: 5}, 0)
	content := store.NewCopy(store.Snapshot{Revision: 5})
	sums := map[int64]store.Digest{5: content.Sum()}
	for revision := int64(6); revision < 40; revision++ {
		b := store.Batch{Revision: revision, Changes: []store.Change{{Entry: store.Entry{
			Key: fmt.Sprint(revision % 7), Value: fmt.Append(nil, revision), Revision: revision}}}}
		pace := time.Duration(revision%3) * time.Hour
		s.apply(b, pace)
		content.Apply(b)
		sums[revision] = content.Sum()
	}
	for at := range int64(45) {
		for of, sum := range sums {
			_, ok, ahead := s.resume(wire.Follow{Revision: at, Sum: sum})
			want := of == at || of == 39 // what is there now, at whatever revision
			if ok != want || ahead && at < 40 {
				t.Errorf("at %d with the content of %d: %v, ahead: %v", at, of, ok, ahead)
			}
		}
	}
}

// BenchmarkApply is a change of one key of a thousand: the copy, its digests, the log.
func BenchmarkApply(b *testing.B) {
	s := newState()
	s.apply(store.Batch{Revision: 1}, 0)
	changes := make([]store.Change, 1000)
	for i := range changes {
		changes[i] = store.Change{Entry: store.Entry{Key: fmt.Sprint("/weir/1/w/pods/", i, "/0"),
			Value: make([]byte, 600), Revision: 2}}
	}
	s.apply(store.Batch{Revision: 2, Changes: changes}, 0)
	revision := int64(2)
	b.ReportAllocs()
	for b.Loop() {
		revision++
		ch := changes[revision%1000]
		ch.Value = fmt.Appendf(ch.Value[:590:590], "%d", revision)
		ch.Revision = revision
		s.apply(store.Batch{Revision: revision, Changes: []store.Change{ch}}, 0)
	}
}

// TestBackoff: while connections do not keep up, deliveries become rarer; when they do, the pace is
// the usual one again.
func TestBackoff(t *testing.T) {
	s := newState()
	s.apply(store.Batch{Revision: 1}, 0)
	var at []*position
	for range 8 {
		s.enter()
		at = append(at, &position{next: s.nextLocked()})
	}
	revision := int64(1)
	round := func(current int) {
		revision++
		s.apply(store.Batch{Revision: revision, Changes: []store.Change{{Entry: store.Entry{
			Key: "k", Value: fmt.Append(nil, revision), Revision: revision}}}}, 0)
		s.mu.Lock()
		if len(s.open.changes) > 0 {
			s.publishLocked()
		}
		s.mu.Unlock()
		for _, p := range at[:current] {
			for wait := false; !wait; {
				_, ready, _ := s.take(p)
				wait = ready != nil
			}
		}
	}
	for range 40 {
		round(8)
	}
	if s.backoff != 0 {
		t.Errorf("%v while all keep up", s.backoff)
	}
	for range 10 {
		round(3)
	}
	if s.backoff != maxBackoff {
		t.Errorf("%v while most do not keep up", s.backoff)
	}
	for range 40 {
		round(8)
	}
	if s.backoff != 0 {
		t.Errorf("%v after all keep up again", s.backoff)
	}
}

// TestTakenStays: what a slow connection has taken stays with it while the log forgets it.
func TestTakenStays(t *testing.T) {
	s := newState()
	s.apply(store.Batch{Revision: 1}, 0)
	value := make([]byte, 1<<20)
	revision := int64(1)
	publish := func() {
		for range maxLog / len(value) {
			revision++
			s.apply(store.Batch{Revision: revision, Changes: []store.Change{{Entry: store.Entry{
				Key: "k", Value: value, Revision: revision}}}}, 0)
		}
	}
	publish()
	publish()
	taken, _, _ := s.take(&position{next: s.first})
	publish()
	if len(taken) != perTurn {
		t.Fatalf("%d segments", len(taken))
	}
	for i, g := range taken {
		if g == nil {
			t.Errorf("segment %d is gone", i)
		}
	}
}

// TestMergedAreFew: connections that are behind by different lengths leave few merged segments
// behind, each of which may be as large as the log.
func TestMergedAreFew(t *testing.T) {
	s := newState()
	s.apply(store.Batch{Revision: 1}, 0)
	for revision := int64(2); revision < 20*maxLag; revision++ {
		s.apply(store.Batch{Revision: revision, Changes: []store.Change{{Entry: store.Entry{
			Key: "k", Value: []byte{1}, Revision: revision}}}}, 0)
	}
	for from := uint64(0); from < 18*maxLag; from += maxLag {
		taken, _, _ := s.take(&position{next: s.first + from})
		if len(taken) != 1 || taken[0].revision != s.copy.Revision {
			t.Fatalf("from %d: %d segments", from, len(taken))
		}
	}
	if len(s.merged) > maxMerged {
		t.Errorf("%d merged segments are kept", len(s.merged))
	}
}
