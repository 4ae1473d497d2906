package pcap

import (
	"fmt"
	"io"

	"github.com/weirnet/weir/packet"
)

// NGWriter writes a pcapng file with nanoseconds: one section, and one interface for each pair of
// name and link. It does not buffer: give it a bufio.Writer and flush that in the end.
type NGWriter struct {
	w          io.Writer
	interfaces map[ifaceKey]uint32
	buf        []byte
}

type ifaceKey struct {
	name string
	link packet.Link
}

// NewNGWriter writes the section header.
func NewNGWriter(w io.Writer) (*NGWriter, error) {
	n := &NGWriter{w: w, interfaces: map[ifaceKey]uint32{}}
	b := n.begin(magicNG)
	b = le.AppendUint32(b, magicOrder)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, ^uint64(0)) // length of the section: not given
	b = appendOption(b, 4, []byte("weir"))
	b = appendOption(b, optEnd, nil)
	return n, n.end(b)
}

// Write appends a record.
func (n *NGWriter) Write(rec Record) error {
	if err := rec.check(); err != nil {
		return err
	}
	if len(rec.Comment) > 0xffff {
		return fmt.Errorf("write capture: comment of %d bytes: %w of 65535", len(rec.Comment),
			errTooLong)
	}
	id, err := n.iface(rec.Interface, rec.Link)
	if err != nil {
		return err
	}
	ns := rec.nanoseconds()
	b := n.begin(blockEnhanced)
	b = le.AppendUint32(b, id)
	b = le.AppendUint32(b, uint32(ns>>32))
	b = le.AppendUint32(b, uint32(ns))
	b = le.AppendUint32(b, uint32(len(rec.Data)))
	b = le.AppendUint32(b, uint32(max(rec.Len, len(rec.Data))))
	b = append(b, rec.Data...)
	b = append(b, make([]byte, -len(rec.Data)&3)...)
	if rec.Comment != "" {
		b = appendOption(b, optComment, []byte(rec.Comment))
	}
	if rec.Direction != Unknown {
		b = appendOption(b, optEPBFlags, le.AppendUint32(nil, uint32(rec.Direction)))
	}
	if rec.Comment != "" || rec.Direction != Unknown {
		b = appendOption(b, optEnd, nil)
	}
	return n.end(b)
}

// iface returns the number of an interface. It writes a description for a new one.
func (n *NGWriter) iface(name string, l packet.Link) (uint32, error) {
	key := ifaceKey{name, l}
	if id, ok := n.interfaces[key]; ok {
		return id, nil
	}
	number, ok := linkType(l)
	if !ok || len(name) > 0xff || len(n.interfaces) == MaxInterfaces {
		return 0, fmt.Errorf("write capture: interface %q with link %d cannot be described",
			name, l)
	}
	b := n.begin(blockInterface)
	b = le.AppendUint16(b, number)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, 262144)
	if name != "" {
		b = appendOption(b, optName, []byte(name))
	}
	b = appendOption(b, optTSResol, []byte{9})
	b = appendOption(b, optEnd, nil)
	if err := n.end(b); err != nil {
		return 0, err
	}
	id := uint32(len(n.interfaces))
	n.interfaces[key] = id
	return id, nil
}

// begin starts a block in the buffer, with four bytes reserved for its length.
func (n *NGWriter) begin(kind uint32) []byte {
	return le.AppendUint32(le.AppendUint32(n.buf[:0], kind), 0)
}

// end completes the block b and writes it.
func (n *NGWriter) end(b []byte) error {
	length := uint32(len(b) + 4)
	le.PutUint32(b[4:], length)
	n.buf = le.AppendUint32(b, length)
	if _, err := n.w.Write(n.buf); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}

// appendOption appends an option, padded to a multiple of 4 bytes.
func appendOption(b []byte, code uint16, v []byte) []byte {
	b = le.AppendUint16(b, code)
	b = le.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	return append(b, make([]byte, -len(v)&3)...)
}
