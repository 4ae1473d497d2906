package wire

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/weirnet/weir/store"
)

const (
	// maxPart is about how much content a frame gets: one more value of store.MaxBytes fits, and
	// then it is still below MaxFrame if compression makes it no smaller.
	maxPart = 512 << 10
	// maxUnpacked bounds what a body expands to.
	maxUnpacked = 4 << 20
	// smallest is the size from which compression is tried.
	smallest = 96
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

var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// packed reads what appendPacked wrote.
func (r *reader) packed() []byte {
	how, body := r.uint(), r.bytes()
	if r.err != nil || how == packedRaw {
		return body
	}
	if how != packedFlate {
		r.fail(fmt.Errorf("compressed in way %d", how))
		return nil
	}
	from := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(from)
	source := bytes.NewReader(body)
	if err := from.(flate.Resetter).Reset(source, nil); err != nil {
		r.fail(err)
		return nil
	}
	var content bytes.Buffer
	n, err := io.Copy(&content, io.LimitReader(from, maxUnpacked+1))
	switch {
	case err != nil:
		r.fail(err)
	case n > maxUnpacked:
		r.fail(fmt.Errorf("a frame expands to more than %d bytes", maxUnpacked))
	case source.Len() > 0:
		r.fail(errors.New("something follows the compressed content"))
	}
	return content.Bytes()
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

func appendChanges(b []byte, changes []store.Change) []byte {
	b = appendUint(b, uint64(len(changes)))
	for _, ch := range changes {
		b = appendBytes(appendUint(appendBool(b, ch.Deleted), uint64(ch.Revision)), ch.Key)
		if !ch.Deleted {
			b = appendBytes(b, ch.Value)
		}
	}
	return b
}

func (r *reader) changes() (changes []store.Change) {
	n := r.count(len(r.rest) / 3)
	if n > 0 {
		changes = make([]store.Change, 0, n)
	}
	for range n {
		ch := store.Change{Deleted: r.bool()}
		ch.Revision, ch.Key = r.revision(), r.string()
		if !ch.Deleted {
			ch.Value = r.value()
		}
		if r.err != nil {
			return nil
		}
		changes = append(changes, ch)
	}
	return changes
}
