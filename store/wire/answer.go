package wire

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weirnet/weir/store"
)

// Welcome is the answer to Hello.
type Welcome struct {
	Cluster  string
	Epoch    uint64
	Revision int64 // of weir-store's copy
}

// Encode returns the frame.
func (m Welcome) Encode() []byte {
	b := appendUint(begin(TypeWelcome, 0), Version)
	b = appendUint(appendBytes(b, m.Cluster), m.Epoch)
	return finish(appendUint(b, uint64(m.Revision)))
}

// DecodeWelcome decodes the body of a frame.
func DecodeWelcome(body []byte) (m Welcome, err error) {
	r := &reader{rest: body}
	if v := r.uint(); r.err == nil && v != Version {
		return m, fmt.Errorf("weir-store has version %d of the protocol, and this host version "+
			"%d: install the same Weir on all hosts", v, Version)
	}
	m.Cluster, m.Epoch, m.Revision = r.string(), r.uint(), r.revision()
	return m, r.end()
}

// Progress says how far weir-store is, for how long its own watch has been silent, and how full the
// store is.
type Progress struct {
	Revision    int64
	Silent      time.Duration
	PercentFull int // of the store; 0: not known
}

// Encode returns the frame.
func (m Progress) Encode() []byte {
	b := appendUint(begin(TypeProgress, 0), uint64(m.Revision))
	b = appendUint(b, uint64(max(m.Silent, 0).Milliseconds()))
	return finish(appendUint(b, uint64(min(max(m.PercentFull, 0), 100))))
}

// maxDuration bounds durations on the wire.
const maxDuration = 100 * 365 * 24 * time.Hour

func (r *reader) duration() time.Duration {
	ms := r.uint()
	if ms > uint64(maxDuration.Milliseconds()) {
		r.fail(fmt.Errorf("a duration of %d ms", ms))
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// DecodeProgress decodes the body of a frame.
func DecodeProgress(body []byte) (m Progress, err error) {
	r := &reader{rest: body}
	m.Revision, m.Silent = r.revision(), r.duration()
	full := r.uint()
	if full > 100 {
		r.fail(fmt.Errorf("a store that is %d %% full", full))
	}
	m.PercentFull = int(min(full, 100))
	return m, r.end()
}

// Wait asks the client to come back after some time, or to go elsewhere.
type Wait struct {
	For    time.Duration
	Reason string
}

// Encode returns the frame.
func (m Wait) Encode() []byte {
	b := appendUint(begin(TypeWait, 0), uint64(m.For.Milliseconds()))
	return finish(appendBytes(b, m.Reason))
}

// DecodeWait decodes the body of a frame.
func DecodeWait(body []byte) (m Wait, err error) {
	r := &reader{rest: body}
	m.For, m.Reason = r.duration(), r.string()
	return m, r.end()
}

// EncodeRefused returns the frame that says why the connection ends.
func EncodeRefused(reason string) []byte {
	return finish(appendBytes(begin(TypeRefused, 0), reason))
}

// DecodeRefused decodes the body of a frame.
func DecodeRefused(body []byte) (reason string, err error) {
	r := &reader{rest: body}
	reason = r.string()
	return reason, r.end()
}

// Result is the answer to Read and Commit, or the end of a Watch. A read that has More continues in
// another Result of the same number.
type Result struct {
	Number   uint64
	Err      error
	Revision int64
	More     bool
	Entries  []store.Entry
}

// Codes of errors. Others are errUnknown: their text is kept.
const (
	codeOK = iota
	codeUnknown
	codeConflict
	codeConflictKey // with the comparison
	codeCompacted
	codeBehind
	codePermission
	codeUnavailable
	codeInvalid
)

var codes = map[uint64]error{
	codeConflict:    store.ErrConflict,
	codeCompacted:   store.ErrCompacted,
	codeBehind:      store.ErrBehind,
	codePermission:  store.ErrPermission,
	codeUnavailable: store.ErrUnavailable,
	codeInvalid:     store.ErrInvalid,
}

// remoteError is an error of package store with the text that weir-store gave it.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// maxText bounds the text of an error.
const maxText = 4 << 10

func appendError(b []byte, err error) []byte {
	if err == nil {
		return appendUint(b, codeOK)
	}
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		b = appendBytes(appendUint(b, codeConflictKey), conflict.Key)
		return appendUint(appendUint(b, uint64(conflict.Revision)), uint64(conflict.Have))
	}
	code := uint64(codeUnknown)
	for c, kind := range codes {
		if errors.Is(err, kind) {
			code = c
		}
	}
	text := err.Error()
	return appendBytes(appendUint(b, code), text[:min(len(text), maxText)])
}

func (r *reader) error() error {
	code := r.uint()
	switch code {
	case codeOK:
		return nil
	case codeConflictKey:
		return &store.ConflictError{Compare: store.Compare{Key: r.string(), Revision: r.revision()},
			Have: r.revision()}
	case codeUnknown:
		return &remoteError{r.string(), store.ErrUnavailable}
	}
	kind, ok := codes[code]
	if !ok {
		r.fail(fmt.Errorf("an error of code %d", code))
		return nil
	}
	return &remoteError{r.string(), kind}
}

// Encode returns the frame. Large lists are divided by Results.
func (m Result) Encode() []byte {
	b := appendError(appendUint(begin(TypeResult, 0), m.Number), m.Err)
	b = appendBool(appendUint(b, uint64(m.Revision)), m.More)
	return finish(appendPacked(b, appendEntries(nil, m.Entries)))
}

// Results returns a snapshot as frames. It makes one when it is asked for, and clears its entries.
// A client may take long to take all of them, and what it has taken is not in memory meanwhile.
func Results(number uint64, s store.Snapshot) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for more := true; more; {
			n := 0
			for size := 0; n < len(s.Entries) && size < maxPart; n++ {
				size += len(s.Entries[n].Key) + len(s.Entries[n].Value)
			}
			more = n < len(s.Entries)
			frame := Result{Number: number, Revision: s.Revision, More: more,
				Entries: s.Entries[:n]}.Encode()
			clear(s.Entries[:n])
			if s.Entries = s.Entries[n:]; !yield(frame) {
				return
			}
		}
	}
}

// DecodeResult decodes the body of a frame.
func DecodeResult(body []byte) (m Result, err error) {
	r := &reader{rest: body}
	m.Number, m.Err, m.Revision, m.More = r.uint(), r.error(), r.revision(), r.bool()
	err = r.packed(func(inner *reader) { m.Entries = inner.entries() })
	return m, err
}

// Event is one transaction of a watch.
type Event struct {
	Number uint64
	Batch  store.Batch
}

// Encode returns the frame.
func (m Event) Encode() []byte {
	b := appendUint(appendUint(begin(TypeEvent, 0), m.Number), uint64(m.Batch.Revision))
	return finish(appendPacked(b, appendChanges(nil, WholeValues(m.Batch.Changes))))
}

// DecodeEvent decodes the body of a frame.
func DecodeEvent(body []byte) (m Event, err error) {
	r := &reader{rest: body}
	m.Number, m.Batch.Revision = r.uint(), r.revision()
	err = r.packed(func(inner *reader) {
		for _, ch := range inner.changes() {
			if ch.Delta != nil {
				inner.fail(errors.New("an event has the delta of a value"))
				return
			}
			m.Batch.Changes = append(m.Batch.Changes, ch.Change)
		}
	})
	return m, err
}
