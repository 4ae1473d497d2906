package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
)

// unframe returns the body of one frame.
func unframe(t testing.TB, frame []byte, want Type) []byte {
	t.Helper()
	from := bytes.NewReader(frame)
	got, body, err := ReadFrame(from, MaxFrame)
	if err != nil || got != want || from.Len() != 0 {
		t.Fatalf("frame of type %d, %d bytes left, %v; expected type %d", got, from.Len(), err,
			want)
	}
	return body
}

var someEntries = []store.Entry{
	{Key: "a", Value: []byte("1"), Revision: 3},
	{Key: "b", Value: []byte(strings.Repeat("long ", 200)), Revision: 1 << 40},
	{Key: "c", Value: []byte{}},
}

var someChanges = []store.Change{
	{Entry: someEntries[0]}, {Entry: store.Entry{Key: "x", Revision: 9}, Deleted: true},
	{Entry: someEntries[1]},
}

// messages are one of each kind: its frame, and what decoding it has to give.
func messages() map[Type]struct {
	frame []byte
	want  any
} {
	type message = struct {
		frame []byte
		want  any
	}
	hello := Hello{Cluster: "id"}
	follow := Follow{Epoch: 2, Revision: 77, Sum: store.Digest{1, 2, 3}}
	digests := Digests{0: {1}, 255: {2}}
	read := Read{Number: 5, Name: "w/", Revision: 9}
	watch := Watch{Number: 6, Name: "w/", After: 9}
	commit := Commit{Number: 7, Txn: store.Txn{
		Compare: []store.Compare{{Key: "a", Revision: 4}},
		Put:     []store.Entry{{Key: "b", Value: []byte("v")}}, Delete: []string{"c"}}}
	join := Join{Request: []byte("{}"), Proof: []byte{1}, Rejoin: []byte{2}}
	welcome := Welcome{Cluster: "id", Epoch: 3, Revision: 8}
	progress := Progress{Revision: 8, Silent: 15 * time.Second, PercentFull: 71}
	wait := Wait{For: time.Second, Reason: "full"}
	result := Result{Number: 7, Revision: 8, More: true, Entries: someEntries}
	event := Event{Number: 6, Batch: store.Batch{Revision: 8, Changes: someChanges}}
	part := Copy{More: true, Buckets: []Bucket{{Index: 3, Entries: someEntries}, {Index: 255}}}
	batch := Batch{Revision: 8,
		Changes: append(WholeValues(someChanges), Change{Delta: Delta{1, 2}})}
	return map[Type]message{
		TypeHello: {hello.Encode(), hello}, TypeFollow: {follow.Encode(), follow},
		TypeDigests: {digests.Encode(), &digests}, TypeRead: {read.Encode(), read},
		TypeCommit: {commit.Encode(), commit}, TypeWatch: {watch.Encode(), watch},
		TypeCancel: {EncodeCancel(6), uint64(6)}, TypeJoin: {join.Encode(), join},
		TypeWelcome: {welcome.Encode(), welcome}, TypeProgress: {progress.Encode(), progress},
		TypeWait: {wait.Encode(), wait}, TypeResult: {result.Encode(), result},
		TypeEvent: {event.Encode(), event}, TypeCopy: {part.Encode(), part},
		TypeBatch:   {Batches(8, batch.Changes), batch},
		TypeRefused: {EncodeRefused("gone"), "gone"},
	}
}

// decode decodes any message.
func decode(t Type, body []byte) (any, error) {
	switch t {
	case TypeHello:
		return DecodeHello(body)
	case TypeFollow:
		return DecodeFollow(body)
	case TypeDigests:
		return DecodeDigests(body)
	case TypeRead:
		return DecodeRead(body)
	case TypeCommit:
		return DecodeCommit(body)
	case TypeWatch:
		return DecodeWatch(body)
	case TypeCancel:
		return DecodeCancel(body)
	case TypeJoin:
		return DecodeJoin(body)
	case TypeWelcome:
		return DecodeWelcome(body)
	case TypeProgress:
		return DecodeProgress(body)
	case TypeWait:
		return DecodeWait(body)
	case TypeResult:
		return DecodeResult(body)
	case TypeEvent:
		return DecodeEvent(body)
	case TypeCopy:
		return DecodeCopy(body)
	case TypeBatch:
		return DecodeBatch(body)
	case TypeRefused:
		return DecodeRefused(body)
	}
	return nil, errors.New("unknown")
}

// TestMessages: every message arrives as it was sent; one that is cut off anywhere, or has a byte
// more, is refused.
func TestMessages(t *testing.T) {
	for kind, m := range messages() {
		body := unframe(t, m.frame, kind)
		got, err := decode(kind, body)
		if err != nil || !reflect.DeepEqual(got, m.want) {
			t.Errorf("type %d: %+v, %v, expected %+v", kind, got, err, m.want)
		}
		for n := range body {
			if _, err := decode(kind, body[:n]); err == nil {
				t.Errorf("type %d: %d of %d bytes are decoded", kind, n, len(body))
			}
		}
		if _, err := decode(kind, append(bytes.Clone(body), 0)); err == nil {
			t.Errorf("type %d: a byte more is decoded", kind)
		}
	}
}

// TestMemoryIsUsedAgain: what a client decodes does not change when the next frame comes into the
// same memory, and when other content is expanded.
func TestMemoryIsUsedAgain(t *testing.T) {
	var memory []byte
	other := Batches(1, WholeValues([]store.Change{{Entry: store.Entry{
		Key: strings.Repeat("zz", 500)}}}))
	for kind, m := range messages() {
		if kind < TypeWelcome {
			continue
		}
		_, body, err := ReadFrameInto(bytes.NewReader(m.frame), MaxFrame, memory)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(kind, body)
		if err != nil {
			t.Fatal(err)
		}
		memory = body[:0]
		for i := range body {
			body[i] = 0xff
		}
		if _, err := DecodeBatch(unframe(t, other, TypeBatch)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, m.want) {
			t.Errorf("type %d: %+v, expected %+v", kind, got, m.want)
		}
	}
}

// TestErrors: an error keeps what it means and what it says.
func TestErrors(t *testing.T) {
	conflict := &store.ConflictError{Compare: store.Compare{Key: "k", Revision: 4}, Have: 9}
	for _, want := range []error{nil, store.ErrCompacted, store.ErrBehind, store.ErrPermission,
		store.ErrUnavailable, store.ErrConflict, store.ErrInvalid,
		fmt.Errorf("write k: %w", store.ErrPermission)} {
		got, err := DecodeResult(unframe(t, Result{Err: want}.Encode(), TypeResult))
		kind := want
		if inner := errors.Unwrap(want); inner != nil {
			kind = inner
		}
		if err != nil || !errors.Is(got.Err, kind) || want != nil && got.Err.Error() !=
			want.Error() {
			t.Errorf("%v arrived as %v, %v", want, got.Err, err)
		}
	}
	got, err := DecodeResult(unframe(t, Result{Err: conflict}.Encode(), TypeResult))
	if err != nil || !reflect.DeepEqual(got.Err, conflict) {
		t.Errorf("a conflict arrived as %v, %v", got.Err, err)
	}
	got, err = DecodeResult(unframe(t, Result{Err: errors.New(strings.Repeat("x",
		1<<20))}.Encode(), TypeResult))
	if err != nil || !errors.Is(got.Err, store.ErrUnavailable) || len(got.Err.Error()) > maxText {
		t.Errorf("an unknown error: %v", err)
	}
}

// TestVersions: another version of the protocol is refused.
func TestVersions(t *testing.T) {
	for _, kind := range []Type{TypeHello, TypeWelcome, TypeJoin} {
		body := unframe(t, messages()[kind].frame, kind)
		body[0] = Version + 1
		if _, err := decode(kind, body); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("type %d of another version: %v", kind, err)
		}
	}
}

// TestFrameLimits: a length that is too large is refused before anything is read, and one that is
// not true takes no memory.
func TestFrameLimits(t *testing.T) {
	for size, fits := range map[int]bool{MaxFirst: true, MaxFirst + 1: false} {
		frame := Frame(TypeHello, make([]byte, size))
		_, body, err := ReadFrame(bytes.NewReader(frame), MaxFirst)
		if fits != (err == nil) || fits != (len(body) == size) {
			t.Errorf("of %d bytes %d are read: %v", size, len(body), err)
		}
	}
	// The length is the largest that there is, and nothing follows it.
	header := append(binary.BigEndian.AppendUint32(nil, MaxFrame), byte(TypeCommit))
	r := &asked{from: bytes.NewReader(header)}
	if _, _, err := ReadFrame(r, MaxFrame); err == nil {
		t.Error("a frame without a body is read")
	}
	if r.most > 64<<10 {
		t.Errorf("for a body that has not come there are %d bytes of memory", r.most)
	}
	r = &asked{from: bytes.NewReader(append(header, make([]byte, 100<<10)...))}
	if _, _, err := ReadFrame(r, MaxFrame); err == nil || r.most > 200<<10 {
		t.Errorf("for 100 KiB that have come there are %d bytes of memory: %v", r.most, err)
	}
}

// asked notes the most memory that a reader has ready for what comes.
type asked struct {
	from io.Reader
	most int
}

func (a *asked) Read(b []byte) (int, error) {
	a.most = max(a.most, len(b))
	return a.from.Read(b)
}

// TestExpansion: a body that expands to more than the limit is refused.
func TestExpansion(t *testing.T) {
	body := appendBool(appendUint(nil, 1), false)
	body = appendPacked(body, make([]byte, maxUnpacked+1))
	if len(body) > 64<<10 {
		t.Fatalf("%d bytes do not test it", len(body))
	}
	if _, err := DecodeBatch(body); err == nil || !strings.Contains(err.Error(), "expands") {
		t.Errorf("decoded: %v", err)
	}
}

// TestLargeSteps: what does not fit into one frame arrives in several, and each is small enough.
func TestLargeSteps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, store.MaxBytes-2)
	for i := range value {
		value[i] = byte(random.Uint32()) // it does not compress
	}
	var changes []store.Change
	var entries []store.Entry
	for i := range 5 {
		e := store.Entry{Key: fmt.Sprintf("k%d", i), Value: value}
		changes, entries = append(changes, store.Change{Entry: e}), append(entries, e)
	}
	count := func(frames []byte, each func(Type, []byte)) (n int) {
		for from := bytes.NewReader(frames); from.Len() > 0; n++ {
			kind, body, err := ReadFrame(from, MaxFrame)
			if err != nil {
				t.Fatal(err)
			}
			each(kind, body)
		}
		return n
	}
	got := 0
	n := count(Batches(7, WholeValues(changes)), func(_ Type, body []byte) {
		m, err := DecodeBatch(body)
		if got += len(m.Changes); err != nil || m.More != (got < len(changes)) {
			t.Errorf("%d changes, more: %v, %v", got, m.More, err)
		}
	})
	if n < 4 || got != len(changes) {
		t.Errorf("%d changes in %d frames", got, n)
	}
	got = 0
	n = count(CopyParts([]Bucket{{Index: 9, Entries: entries}}), func(_ Type, body []byte) {
		m, err := DecodeCopy(body)
		for _, b := range m.Buckets {
			got += len(b.Entries)
		}
		if err != nil || !m.More {
			t.Errorf("more: %v, %v", m.More, err)
		}
	})
	if n < 4 || got != len(entries) {
		t.Errorf("%d entries in %d frames", got, n)
	}
}

// FuzzDecode: no body makes decoding fail in another way than by an error, and what is decoded
// encodes to something that decodes to the same.
func FuzzDecode(f *testing.F) {
	for kind, m := range messages() {
		f.Add(byte(kind), unframe(f, m.frame, kind))
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		if len(body) > MaxFrame {
			return
		}
		got, err := decode(Type(kind), body)
		if err != nil {
			return
		}
		frame := encode(t, got)
		again, err := decode(Type(kind), unframe(t, frame, Type(kind)))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v became %+v, %v", got, again, err)
		}
	})
}

func encode(t *testing.T, m any) []byte {
	switch m := m.(type) {
	case interface{ Encode() []byte }:
		return m.Encode()
	case uint64:
		return EncodeCancel(m)
	case string:
		return EncodeRefused(m)
	case Batch:
		frames := Batches(m.Revision, m.Changes)
		if m.More { // only Batches decides about that
			frames[headerSize+uintSize(uint64(m.Revision))] = 1
		}
		return frames
	}
	t.Fatalf("%T", m)
	return nil
}

func uintSize(v uint64) int { return len(appendUint(nil, v)) }

// BenchmarkBatch packs one change of a pod.
func BenchmarkBatch(b *testing.B) {
	value := []byte(`{"version":1,"pods":[{"name":"web-7f8d","addresses":["10.1.2.3"],` +
		`"labels":{"app":"web","tier":"front"}}]}`)
	changes := WholeValues([]store.Change{{Entry: store.Entry{Key: "/weir/1/w/pods/host/0",
		Value: value}}})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = len(Batches(1, changes))
	}
	b.ReportMetric(float64(n), "bytes")
}

// TestResultsAreMadeInTurn: the frames of an answer have all of it, and what was sent is not kept
// while a client takes the rest.
func TestResultsAreMadeInTurn(t *testing.T) {
	var s, got store.Snapshot
	for i := range 5 {
		s.Entries = append(s.Entries, store.Entry{Key: string(rune('a' + i)), Revision: 1,
			Value: bytes.Repeat([]byte{byte(i)}, maxPart)})
	}
	want := bytes.Clone(s.Entries[4].Value)
	n := 0
	for frame := range Results(7, s) {
		n++
		for i := range s.Entries {
			if kept := s.Entries[i].Value != nil; kept != (i >= n) {
				t.Errorf("with frame %d, entry %d is kept: %v", n, i, kept)
			}
		}
		m, err := DecodeResult(unframe(t, frame, TypeResult))
		if err != nil || m.Number != 7 || m.More != (n < 5) {
			t.Fatalf("frame %d: %v, more %v, %v", n, m.Number, m.More, err)
		}
		got.Entries = append(got.Entries, m.Entries...)
	}
	if len(got.Entries) != 5 || !bytes.Equal(got.Entries[4].Value, want) {
		t.Errorf("%d entries", len(got.Entries))
	}
	for frame := range Results(8, store.Snapshot{Revision: 3}) {
		if m, err := DecodeResult(unframe(t, frame, TypeResult)); err != nil || m.Revision != 3 {
			t.Errorf("nothing: %v, %v", m, err)
		}
	}
}
