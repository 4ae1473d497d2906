package kernel

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/program"
)

// image is a Program as the kernel reads it: rows, each section beginning at a row of its own. The
// vectors of many rules take tens of megabytes, so that rows are made only as they are written.
type image struct {
	header weirHeader
	codes  []weirCode // a part of it
	parts  []part     // behind the header's row
	count  int        // of rows
}

// part is a section of an image: memory that is written as it is, or vectors.
type part struct {
	row     int // the first
	memory  []byte
	vectors *program.Vectors
	per     int // words that a vector takes
}

// section appends values to the image, beginning at a row of their own, and returns the number of
// that row.
func section[T any](im *image, values []T) uint32 {
	return im.add(part{memory: bytesOf(values)}, len(bytesOf(values)))
}

// vectors appends vectors, each of which takes per words.
func (im *image) vectors(v *program.Vectors, per int) uint32 {
	return im.add(part{vectors: v, per: per}, v.Len()*per*8)
}

func (im *image) add(p part, size int) uint32 {
	row := uint32(im.count)
	p.row = im.count
	im.parts = append(im.parts, p)
	im.count += max((size+rowSize-1)/rowSize, 1)
	return row
}

// bytesOf returns the memory of values, which the kernel reads as it is.
func bytesOf[T any](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])),
		len(values)*int(unsafe.Sizeof(values[0])))
}

// write writes the image into a map, a long one by two processors.
func (im *image) write(m *ebpf.Map) error {
	half := im.half()
	if half == 0 || im.count < 4*chunk {
		return im.writeParts(m, 0, len(im.parts))
	}
	first := make(chan error)
	go func() { first <- im.writeParts(m, 0, half) }()
	err := im.writeParts(m, half, len(im.parts))
	return errors.Join(<-first, err)
}

// half returns the part that begins next to the middle of the image.
func (im *image) half() (best int) {
	off := im.count
	for i := range im.parts {
		if d := max(2*im.parts[i].row-im.count, im.count-2*im.parts[i].row); d < off {
			best, off = i, d
		}
	}
	return best
}

// writeParts writes some of the parts, the header with the first, and behind the last one what
// clears the rest of the map.
func (im *image) writeParts(m *ebpf.Map, from, to int) error {
	w := &rowWriter{m: m, of: im.count}
	if from == 0 {
		if err := w.write(bytesOf([]weirHeader{im.header})); err != nil {
			return err
		}
		if err := w.endSection(0); err != nil {
			return err
		}
	} else {
		w.row, w.done = im.parts[from].row, im.parts[from].row
	}
	for i := range im.parts[from:to] {
		begin := w.row
		if err := im.parts[from+i].write(w); err != nil {
			return err
		}
		if err := w.endSection(begin); err != nil {
			return err
		}
	}
	empty := make([]byte, rowSize)
	for to == len(im.parts) && w.row < int(m.MaxEntries()) { // what an image before has left
		if err := w.write(empty); err != nil {
			return err
		}
	}
	return w.flush()
}

func (p *part) write(w *rowWriter) error {
	if p.vectors == nil {
		return w.write(p.memory)
	}
	for _, vector := range p.vectors.All() {
		if err := w.vector(vector, p.per*8); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how many rows are written at once: few enough to stay in the processor's cache.
const chunk = 128

// rowWriter writes bytes into the rows of a map, one behind the other.
type rowWriter struct {
	m    *ebpf.Map
	of   int // rows of the map
	row  int // of the next byte
	done int // rows that are in the map
	keys [chunk]uint32
	rows [chunk][rowSize]byte
	at   int // bytes in rows
}

func (w *rowWriter) write(b []byte) error {
	for len(b) > 0 {
		all := unsafe.Slice(&w.rows[0][0], chunk*rowSize)
		n := copy(all[w.at:], b)
		b, w.at = b[n:], w.at+n
		w.row = w.done + w.at/rowSize
		if w.at == len(all) {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// vector writes a vector and fills it up to size bytes, a part of a row.
func (w *rowWriter) vector(v []uint64, size int) error {
	to := unsafe.Slice(&w.rows[0][0], chunk*rowSize)[w.at : w.at+size]
	clear(to[copy(to, bytesOf(v)):])
	w.at += size
	w.row = w.done + w.at/rowSize
	if w.at == chunk*rowSize {
		return w.flush()
	}
	return nil
}

// endSection fills the row up, or one if the section that began at a row is empty.
func (w *rowWriter) endSection(begin int) error {
	rest := w.at % rowSize
	if rest == 0 && w.row > begin {
		return nil
	}
	return w.write(make([]byte, rowSize-rest))
}

// flush writes the rows that are whole.
func (w *rowWriter) flush() error {
	n := w.at / rowSize
	if n == 0 {
		return nil
	}
	for i := range n {
		w.keys[i] = uint32(w.done + i)
	}
	if _, err := w.m.BatchUpdate(w.keys[:n], w.rows[:n], nil); err != nil {
		return fmt.Errorf("write rows %d to %d of %d of the rules: %w", w.done, w.done+n-1, w.of,
			err)
	}
	w.done, w.at = w.done+n, 0
	w.row = w.done
	return nil
}
