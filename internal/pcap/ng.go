package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// Block types of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockInterface = 1
	blockPacketOld = 2
	blockSimple    = 3
	blockEnhanced  = 6
)

// Options of blocks.
const (
	optEnd       = 0
	optComment   = 1
	optName      = 2  // interface
	optTSResol   = 9  // interface
	optTSOffset  = 14 // interface
	optEPBFlags  = 2  // packet
	optOldFlags  = 2  // packet block, the same meaning
	maxTSSeconds = 1 << 38
)

// ng is the state of the section that is being read.
type ng struct {
	interfaces []ngInterface
}

// openNG reads the first section header.
func (d *Reader) openNG() error {
	h, err := d.more(8)
	if err != nil {
		return fmt.Errorf("section header: %w", err)
	}
	return d.section(binary.LittleEndian.Uint32(h[4:]))
}

// section reads a section header behind its type and length. length is read as little-endian,
// because the byte order follows in the block.
func (d *Reader) section(length uint32) error {
	h, err := d.more(16)
	if err != nil {
		return fmt.Errorf("section header: %w", err)
	}
	switch {
	case binary.LittleEndian.Uint32(h) == magicOrder:
		d.order = binary.LittleEndian
	case binary.BigEndian.Uint32(h) == magicOrder:
		d.order = binary.BigEndian
		length = bits.ReverseBytes32(length)
	default:
		return fmt.Errorf("section header: byte-order magic % x", h[:4])
	}
	if major := d.order.Uint16(h[4:]); major != 1 {
		return fmt.Errorf("pcapng version %d.%d: only version 1 is supported", major,
			d.order.Uint16(h[6:]))
	}
	if length < 28 || length%4 != 0 {
		return fmt.Errorf("section header of %d bytes", length)
	}
	d.ng.interfaces = d.ng.interfaces[:0]
	if err := d.skip(int64(length) - 28); err != nil {
		return err
	}
	return d.trailer(length)
}

// trailer reads the length that ends a block.
func (d *Reader) trailer(length uint32) error {
	n, err := io.ReadFull(d.in, d.tail[:])
	d.off += int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if got := d.order.Uint32(d.tail[:]); got != length {
		return fmt.Errorf("block begins with length %d and ends with %d", length, got)
	}
	return nil
}

// nextNG reads blocks up to and including the next one with a packet.
func (d *Reader) nextNG() (Record, error) {
	for {
		h, err := d.fill(8)
		if err != nil {
			return Record{}, err
		}
		kind, length := d.order.Uint32(h), d.order.Uint32(h[4:])
		if kind == magicNG {
			if err := d.section(binary.LittleEndian.Uint32(h[4:])); err != nil {
				return Record{}, err
			}
			continue
		}
		if length < 12 || length%4 != 0 {
			return Record{}, fmt.Errorf("block of %d bytes: want a multiple of 4 from 12 on",
				length)
		}
		rec, found, err := d.block(kind, length)
		if err != nil {
			return Record{}, err
		}
		if found {
			return rec, nil
		}
	}
}

// block reads one block behind its type and length.
func (d *Reader) block(kind, length uint32) (rec Record, found bool, err error) {
	switch kind {
	case blockInterface, blockPacketOld, blockSimple, blockEnhanced:
	default:
		if err := d.skip(int64(length) - 12); err != nil {
			return Record{}, false, err
		}
		return Record{}, false, d.trailer(length)
	}
	if length > MaxPacket+maxOptions {
		return Record{}, false, fmt.Errorf("block of %d bytes: %w of %d", length, errTooLong,
			MaxPacket+maxOptions)
	}
	body, err := d.more(int(length) - 12)
	if err != nil {
		return Record{}, false, err
	}
	if err := d.trailer(length); err != nil {
		return Record{}, false, err
	}
	switch kind {
	case blockInterface:
		return Record{}, false, d.describe(body)
	case blockSimple:
		rec, err = d.simple(body)
	case blockEnhanced:
		rec, err = d.enhanced(body, optEPBFlags)
	case blockPacketOld:
		rec, err = d.obsolete(body)
	}
	return rec, err == nil, err
}

// options calls f for each option in b.
func (d *Reader) options(b []byte, f func(code uint16, v []byte) error) error {
	for len(b) >= 4 {
		code, n := d.order.Uint16(b), int(d.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		b = b[4:]
		padded := (n + 3) &^ 3
		if padded > len(b) {
			return fmt.Errorf("option %d of %d bytes beyond the block", code, n)
		}
		if err := f(code, b[:n]); err != nil {
			return err
		}
		b = b[padded:]
	}
	return nil
}

// simple reads a simple packet block: length and data, on the first interface.
func (d *Reader) simple(b []byte) (Record, error) {
	if len(b) < 4 {
		return Record{}, errors.New("simple packet block too short")
	}
	i, err := d.iface(0)
	if err != nil {
		return Record{}, err
	}
	length := d.order.Uint32(b)
	captured := min(uint32(len(b)-4), length)
	if i.snaplen != 0 {
		captured = min(captured, i.snaplen)
	}
	return d.record(i, b[4:], captured, length)
}

// enhanced reads an enhanced packet block.
func (d *Reader) enhanced(b []byte, flags uint16) (Record, error) {
	if len(b) < 20 {
		return Record{}, errors.New("packet block too short")
	}
	i, err := d.iface(d.order.Uint32(b))
	if err != nil {
		return Record{}, err
	}
	ts := uint64(d.order.Uint32(b[4:]))<<32 | uint64(d.order.Uint32(b[8:]))
	captured, length := d.order.Uint32(b[12:]), d.order.Uint32(b[16:])
	rec, err := d.record(i, b[20:], captured, length)
	if err != nil {
		return Record{}, err
	}
	rec.Time = i.time(ts)
	padded := (int(captured) + 3) &^ 3
	err = d.options(b[20+min(padded, len(b)-20):], func(code uint16, v []byte) error {
		switch {
		case code == optComment:
			rec.Comment = string(v)
		case code == flags && len(v) == 4:
			rec.Direction = Direction(d.order.Uint32(v) & 3)
		}
		return nil
	})
	if rec.Direction > Outbound {
		rec.Direction = Unknown
	}
	return rec, err
}

// obsolete reads an obsolete packet block. It differs from an enhanced one in 16 bits for the
// interface and 16 bits for a drop count.
func (d *Reader) obsolete(b []byte) (Record, error) {
	if len(b) < 20 {
		return Record{}, errors.New("packet block too short")
	}
	d.order.PutUint32(b, uint32(d.order.Uint16(b)))
	return d.enhanced(b, optOldFlags)
}

// record makes a record of the data at the start of b.
func (d *Reader) record(i ngInterface, b []byte, captured, length uint32) (Record, error) {
	if uint64(captured) > uint64(len(b)) {
		return Record{}, fmt.Errorf("packet of %d bytes in a block with space for %d", captured,
			len(b))
	}
	if captured > MaxPacket {
		return Record{}, fmt.Errorf("packet of %d bytes: %w of %d", captured, errTooLong, MaxPacket)
	}
	return Record{Data: b[:captured:captured], Len: max(int(length), int(captured)), Link: i.link,
		Interface: i.name}, nil
}
