package wire

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/weirnet/weir/store"
)

const (
	// maxPart is about how much content a frame gets: one more value of store.MaxBytes fits, and
	// then it is still below MaxFrame if compression makes it no smaller.
	maxPart = 512 << 10
	// maxUnpacked bounds what a body expands to.
	maxUnpacked = 4 << 20
	// smallest is the size from which compression is tried: what expands less costs a host more
	// than the bytes, 5 us for a frame.
	smallest = 512
)

// How content is packed.
const (
	packedRaw = iota
	packedFlate
)

var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.DefaultCompression) // the level is a valid one
	return w
}}

// appendPacked appends content, compressed if that makes it smaller.
func appendPacked(b, content []byte) []byte {
	if len(content) >= smallest {
		var small bytes.Buffer
		w := deflaters.Get().(*flate.Writer)
		defer deflaters.Put(w)
		w.Reset(&small)
		// Writes to a bytes.Buffer do not fail.
		_, _ = w.Write(content)
		_ = w.Close()
		if small.Len() < len(content) {
			return appendBytes(appendUint(b, packedFlate), small.Bytes())
		}
	}
	return appendBytes(appendUint(b, packedRaw), content)
}

// inflater has what expands content, and its result.
type inflater struct {
	source  bytes.Reader
	from    io.Reader
	content []byte
}

// keptContent is how much an inflater keeps for its next content.
const keptContent = 1 << 20

var inflaters = sync.Pool{New: func() any {
	return &inflater{from: flate.NewReader(nil), content: make([]byte, 0, 16<<10)}
}}

// expand expands what appendPacked compressed.
func (i *inflater) expand(body []byte) error {
	i.source.Reset(body)
	if err := i.from.(flate.Resetter).Reset(&i.source, nil); err != nil {
		return err
	}
	for i.content = i.content[:0]; ; {
		n, err := i.from.Read(i.content[len(i.content):cap(i.content)])
		i.content = i.content[:len(i.content)+n]
		switch {
		case len(i.content) > maxUnpacked:
			return fmt.Errorf("a frame expands to more than %d bytes", maxUnpacked)
		case err == io.EOF && i.source.Len() > 0:
			return errors.New("there is data after the compressed content")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if len(i.content) == cap(i.content) {
			i.content = slices.Grow(i.content, len(i.content))
		}
	}
}

// packed reads what appendPacked wrote, up to the end of the body, and gives read the content. It
// is used again afterwards: read keeps copies. The error is that of the body or of the content.
func (r *reader) packed(read func(*reader)) error {
	how, body := r.uint(), r.bytes()
	if err := r.end(); err != nil {
		return err
	}
	switch how {
	case packedRaw:
	case packedFlate:
		i := inflaters.Get().(*inflater)
		defer func() {
			if i.source.Reset(nil); cap(i.content) <= keptContent {
				inflaters.Put(i)
			}
		}()
		if err := i.expand(body); err != nil {
			return err
		}
		body = i.content
	default:
		return fmt.Errorf("unknown compression %d", how)
	}
	inner := &reader{rest: body}
	read(inner)
	return inner.end()
}

func appendEntries(b []byte, entries []store.Entry) []byte {
	b = appendUint(b, uint64(len(entries)))
	for _, e := range entries {
		b = appendBytes(appendBytes(appendUint(b, uint64(e.Revision)), e.Key), e.Value)
	}
	return b
}

// value reads a value that lives on its own: a copy must not keep the whole frame in memory.
func (r *reader) value() []byte { return bytes.Clone(r.bytes()) }

func (r *reader) entries() (entries []store.Entry) {
	n := r.count(len(r.rest) / 3)
	if n > 0 {
		entries = make([]store.Entry, 0, n)
	}
	for range n {
		e := store.Entry{Revision: r.revision(), Key: r.string(), Value: r.value()}
		if r.err != nil {
			return nil
		}
		entries = append(entries, e)
	}
	return entries
}

// Forms of a change.
const (
	formValue = iota
	formDeleted
	formDelta
)

func appendChanges(b []byte, changes []Change) []byte {
	b = appendUint(b, uint64(len(changes)))
	for _, ch := range changes {
		form, content := uint64(formValue), ch.Value
		switch {
		case ch.Deleted:
			form = formDeleted
		case ch.Delta != nil:
			form, content = formDelta, ch.Delta
		}
		b = appendBytes(appendUint(appendUint(b, form), uint64(ch.Revision)), ch.Key)
		if form != formDeleted {
			b = appendBytes(b, content)
		}
	}
	return b
}

func (r *reader) changes() (changes []Change) {
	n := r.count(len(r.rest) / 3)
	if n > 0 {
		changes = make([]Change, 0, n)
	}
	for range n {
		var ch Change
		form := r.uint()
		ch.Revision, ch.Key = r.revision(), r.string()
		switch form {
		case formValue:
			ch.Value = r.value()
		case formDeleted:
			ch.Deleted = true
		case formDelta:
			ch.Delta = r.value()
		default:
			r.fail(fmt.Errorf("a change of form %d", form))
		}
		if r.err != nil {
			return nil
		}
		changes = append(changes, ch)
	}
	return changes
}
