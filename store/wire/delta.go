package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/weirnet/weir/store"
)

// Change is a change of a batch. With a Delta its Value is nil: it is what the delta makes of the
// value before.
type Change struct {
	store.Change
	Delta Delta
}

// Delta is a value as what differs from the value that the key had before. A host that has that one
// copies most of it instead of expanding the whole again.
//
// It has the lengths of both values, the CRC-32C of the later one (4 bytes, big endian), and steps.
// A step is how much of the earlier value is left out, how much of it is copied, and bytes that
// follow. Steps go forward only, so a value is never larger than the one before and its delta
// together.
type Delta []byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Deltas returns the changes, as deltas where that is much shorter. before returns the value that
// every receiver has of a key, nil without one.
func Deltas(changes []store.Change, before func(key string) []byte) []Change {
	deltas := make([]Change, len(changes))
	for i, ch := range changes {
		deltas[i].Change = ch
		if ch.Deleted {
			continue
		}
		if was := before(ch.Key); len(was) > 0 {
			if e := NewDelta(was, ch.Value); 2*len(e) < len(ch.Value) {
				deltas[i].Delta, deltas[i].Value = e, nil
			}
		}
	}
	return deltas
}

// WholeValues returns the changes as ones of a batch, without deltas.
func WholeValues(changes []store.Change) []Change {
	return Deltas(changes, func(string) []byte { return nil })
}

// Of returns the change, given the value that the key has.
func (ch Change) Of(before []byte) (store.Change, error) {
	if ch.Delta == nil {
		return ch.Change, nil
	}
	var err error
	ch.Value, err = ch.Delta.Apply(before)
	return ch.Change, err
}

// size returns about how long a change is on the wire.
func (ch *Change) size() int { return len(ch.Key) + len(ch.Value) + len(ch.Delta) }

// NewDelta returns what makes a value of the one before.
func NewDelta(before, after []byte) Delta {
	e := Delta(appendUint(appendUint(nil, uint64(len(before))), uint64(len(after))))
	e = binary.BigEndian.AppendUint32(e, crc32.Checksum(after, castagnoli))
	s := steps{delta: e}
	head := commonPrefix(before, after)
	tail := commonSuffix(before[head:], after[head:])
	s.copy(0, head)
	old, at := pieces(before[head:len(before)-tail]), head
	for _, p := range pieces(after[head : len(after)-tail]) {
		skip := find(old, p)
		if skip < 0 {
			s.insert(p)
			continue
		}
		for _, gone := range old[:skip] {
			at += len(gone)
		}
		s.copy(at, len(p))
		old, at = old[skip+1:], at+len(p)
	}
	s.copy(len(before)-tail, tail)
	return s.end()
}

// smallestPiece is how long what is looked for in the value before is at least.
const smallestPiece = 16

// pieces cuts a text behind the ends of objects of JSON.
func pieces(text []byte) (all [][]byte) {
	for len(text) > 0 {
		n := len(text)
		if n > smallestPiece {
			if end := bytes.IndexByte(text[smallestPiece:], '}'); end >= 0 {
				n = smallestPiece + end + 1
			}
		}
		all, text = append(all, text[:n]), text[n:]
	}
	return all
}

// maxPieces bounds how far find looks: a host chooses the values of its pods, and weir-store must
// not work for long on any two.
const maxPieces = 64

// find returns which of the next pieces of the value before is p, -1 for none.
func find(old [][]byte, p []byte) int {
	return slices.IndexFunc(old[:min(len(old), maxPieces)],
		func(o []byte) bool { return bytes.Equal(o, p) })
}

// steps makes the steps of a delta: one for what is left out, copied and inserted.
type steps struct {
	delta    Delta
	done     int // of the value before
	from, to int // what is copied
	inserted []byte
}

func (s *steps) copy(from, length int) {
	if length == 0 {
		return
	}
	if len(s.inserted) > 0 || from != s.to {
		s.flush()
		s.from = from
	}
	s.to = from + length
}

func (s *steps) insert(text []byte) { s.inserted = append(s.inserted, text...) }

func (s *steps) flush() {
	if s.from == s.to && len(s.inserted) == 0 {
		return
	}
	e := appendUint(appendUint(s.delta, uint64(s.from-s.done)), uint64(s.to-s.from))
	s.delta = appendBytes(e, s.inserted)
	s.done, s.from, s.inserted = s.to, s.to, s.inserted[:0]
}

func (s *steps) end() Delta {
	s.flush()
	return s.delta
}

var errDelta = errors.New("a delta does not belong to the value before")

// Apply returns the value that the delta makes of the one before.
func (e Delta) Apply(before []byte) (after []byte, err error) {
	r := &reader{rest: e}
	had, size := r.uint(), r.uint()
	var sum [crc32.Size]byte
	r.fixed(sum[:])
	switch {
	case r.err != nil:
		return nil, r.err
	case had != uint64(len(before)):
		return nil, fmt.Errorf("%w: it has %d bytes, expected %d", errDelta, len(before), had)
	case size > uint64(len(before)+len(e)):
		return nil, fmt.Errorf("a delta of %d bytes promises %d", len(e), size)
	}
	after = make([]byte, 0, size)
	for len(r.rest) > 0 {
		skip, length, inserted := r.uint(), r.uint(), r.bytes()
		switch {
		case r.err != nil:
			return nil, r.err
		case skip > uint64(len(before)) || length > uint64(len(before))-skip:
			return nil, fmt.Errorf("%w: it is too short", errDelta)
		case uint64(len(after)+len(inserted))+length > size:
			return nil, errors.New("a delta makes more than it promises")
		}
		after = append(append(after, before[skip:skip+length]...), inserted...)
		before = before[skip+length:]
	}
	if uint64(len(after)) != size ||
		crc32.Checksum(after, castagnoli) != binary.BigEndian.Uint32(sum[:]) {
		return nil, errDelta
	}
	return after, nil
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func commonSuffix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[len(a)-1-i] != b[len(b)-1-i] {
			return i
		}
	}
	return n
}
