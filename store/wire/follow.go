package wire

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/store"
)

// Batch is what changed between what the client has and a revision. One that has More continues in
// the next one; the client makes all of it one step.
type Batch struct {
	Revision int64
	More     bool
	Changes  []Change
}

// Batches returns a step as frames.
func Batches(revision int64, changes []Change) (frames []byte) {
	for {
		n := 0
		for size := 0; n < len(changes) && size < maxPart; n++ {
			size += changes[n].size()
		}
		more := n < len(changes)
		b := appendBool(appendUint(begin(TypeBatch, 0), uint64(revision)), more)
		frames = append(frames, finish(appendPacked(b, appendChanges(nil, changes[:n])))...)
		if changes = changes[n:]; !more {
			return frames
		}
	}
}

// DecodeBatch decodes the body of a frame.
func DecodeBatch(body []byte) (m Batch, err error) {
	r := &reader{rest: body}
	m.Revision, m.More = r.revision(), r.bool()
	err = r.packed(func(inner *reader) { m.Changes = inner.changes() })
	return m, err
}

// Bucket is a bucket of a copy, whole.
type Bucket struct {
	Index   int
	Entries []store.Entry
}

// Copy is a part of a difference: some buckets, whole. More means that the bucket, if it is the
// last one, and the difference continue in the next frame. The frame without More ends the
// difference and has its revision.
type Copy struct {
	Revision int64
	More     bool
	Buckets  []Bucket
}

// CopyParts returns buckets as frames that all have More.
func CopyParts(buckets []Bucket) (frames []byte) {
	var part []Bucket
	size := 0
	flush := func() {
		if len(part) > 0 {
			frames = append(frames, Copy{More: true, Buckets: part}.Encode()...)
		}
		part, size = nil, 0
	}
	for _, b := range buckets {
		part = append(part, Bucket{Index: b.Index})
		for _, e := range b.Entries {
			if size >= maxPart {
				flush()
				part = []Bucket{{Index: b.Index}}
			}
			last := &part[len(part)-1]
			last.Entries = append(last.Entries, e)
			size += len(e.Key) + len(e.Value)
		}
	}
	flush()
	return frames
}

// CopyEnd returns the frame that ends a difference.
func CopyEnd(revision int64) []byte { return Copy{Revision: revision}.Encode() }

// Encode returns the frame.
func (m Copy) Encode() []byte {
	b := appendBool(appendUint(begin(TypeCopy, 0), uint64(m.Revision)), m.More)
	var content []byte
	for _, k := range m.Buckets {
		content = appendEntries(appendUint(content, uint64(k.Index)), k.Entries)
	}
	return finish(appendPacked(b, content))
}

// DecodeCopy decodes the body of a frame.
func DecodeCopy(body []byte) (m Copy, err error) {
	r := &reader{rest: body}
	m.Revision, m.More = r.revision(), r.bool()
	err = r.packed(func(inner *reader) {
		for inner.err == nil && len(inner.rest) > 0 {
			k := Bucket{Index: int(min(inner.uint(), store.Buckets)), Entries: inner.entries()}
			if k.Index >= store.Buckets {
				inner.fail(fmt.Errorf("a copy has %d buckets", store.Buckets))
			}
			m.Buckets = append(m.Buckets, k)
		}
	})
	if err == nil && !m.More && len(m.Buckets) > 0 {
		err = errors.New("the end of a difference has buckets")
	}
	return m, err
}
