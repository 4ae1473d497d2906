package pcap

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/weirnet/weir/packet"
)

var le = binary.LittleEndian

// Writer writes a pcap file with nanoseconds. It does not buffer: give it a bufio.Writer and flush
// that in the end.
type Writer struct {
	w    io.Writer
	link packet.Link
	buf  []byte
}

// NewWriter writes the header of a file whose packets all start with link l.
func NewWriter(w io.Writer, l packet.Link) (*Writer, error) {
	n, ok := linkType(l)
	if !ok {
		return nil, fmt.Errorf("write capture: link %d has no link type", l)
	}
	h := le.AppendUint32(nil, magicNano)
	h = le.AppendUint16(h, 2)
	h = le.AppendUint16(h, 4)
	h = append(h, make([]byte, 8)...)
	h = le.AppendUint32(h, 262144)
	h = le.AppendUint32(h, uint32(n))
	if _, err := w.Write(h); err != nil {
		return nil, fmt.Errorf("write capture: %w", err)
	}
	return &Writer{w: w, link: l}, nil
}

// Write appends a record. Interface, Direction and Comment are lost.
func (w *Writer) Write(rec Record) error {
	if rec.Link != w.link {
		return fmt.Errorf("write capture: packet with link %d in a pcap file with link %d: write "+
			"pcapng instead", rec.Link, w.link)
	}
	if err := rec.check(); err != nil {
		return err
	}
	ns := rec.nanoseconds()
	if ns/1e9 > 1<<32-1 {
		return fmt.Errorf("write capture: time %v does not fit a pcap file: write pcapng instead",
			rec.Time)
	}
	w.buf = le.AppendUint32(w.buf[:0], uint32(ns/1e9))
	w.buf = le.AppendUint32(w.buf, uint32(ns%1e9))
	w.buf = le.AppendUint32(w.buf, uint32(len(rec.Data)))
	w.buf = le.AppendUint32(w.buf, uint32(max(rec.Len, len(rec.Data))))
	w.buf = append(w.buf, rec.Data...)
	if _, err := w.w.Write(w.buf); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}

// check returns an error for a record that a capture file cannot hold.
func (rec *Record) check() error {
	if len(rec.Data) > MaxPacket || rec.Len > 1<<31 {
		return fmt.Errorf("write capture: packet of %d bytes: %w of %d",
			max(len(rec.Data), rec.Len), errTooLong, MaxPacket)
	}
	if t := rec.Time; !t.IsZero() && (t.Before(time.Unix(0, 0)) || t.Year() > 2261) {
		return fmt.Errorf("write capture: time %v does not fit", t)
	}
	return nil
}

// nanoseconds returns the time since 1970, 0 if it is unknown.
func (rec *Record) nanoseconds() uint64 {
	if rec.Time.IsZero() {
		return 0
	}
	return uint64(rec.Time.UnixNano())
}
