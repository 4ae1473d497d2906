package pcap

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Reader reads the records of a capture file. Make one with NewReader.
type Reader struct {
	in      *bufio.Reader
	off     int64 // bytes of the unpacked file read so far
	count   int   // records returned so far
	buf     []byte
	tail    [4]byte // the end of a block, while buf holds its body
	order   binary.ByteOrder
	classic *classic // pcap
	ng      *ng      // pcapng
	err     error    // the error that Next returns from now on
}

// Magic numbers at the start of a file.
const (
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
	magicNG    = 0x0a0d0d0a // block type of a section header, the same in both byte orders
	magicOrder = 0x1a2b3c4d
)

// NewReader detects the format of the file in r and reads its header.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if head, err := in.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("capture file: %w", err)
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}
	d := &Reader{in: in}
	magic, err := in.Peek(4)
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("capture file: no header: %w", err)
	}
	if binary.BigEndian.Uint32(magic) == magicNG {
		d.ng = &ng{}
		if err := d.openNG(); err != nil {
			return nil, fmt.Errorf("capture file: %w", err)
		}
		return d, nil
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if m := order.Uint32(magic); m == magicMicro || m == magicNano {
			d.order = order
			if err := d.openClassic(m == magicNano); err != nil {
				return nil, fmt.Errorf("capture file: %w", err)
			}
			return d, nil
		}
	}
	return nil, errFormat{magic}
}

// Next returns the next record. At the end of the file the error is io.EOF. After an error every
// call returns it again.
func (d *Reader) Next() (Record, error) {
	if d.err != nil {
		return Record{}, d.err
	}
	start := d.off
	var rec Record
	var err error
	if d.classic != nil {
		rec, err = d.nextClassic()
	} else {
		rec, err = d.nextNG()
	}
	switch {
	case err == nil:
		d.count++
		return rec, nil
	case err == io.EOF:
		d.err = io.EOF
	default:
		d.err = fmt.Errorf("capture file: after packet %d, byte %d: %w", d.count, start, err)
	}
	return Record{}, d.err
}

// fill reads n bytes into the buffer. io.EOF means that there was no byte left.
func (d *Reader) fill(n int) ([]byte, error) {
	if cap(d.buf) < n {
		d.buf = make([]byte, max(n, 4096))
	}
	b := d.buf[:n]
	got, err := io.ReadFull(d.in, b)
	d.off += int64(got)
	return b, err
}

// more is fill within a header or record, where the end of the file is unexpected.
func (d *Reader) more(n int) ([]byte, error) {
	b, err := d.fill(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// skip drops n bytes.
func (d *Reader) skip(n int64) error {
	got, err := io.CopyN(io.Discard, d.in, n)
	d.off += got
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// errTooLong is wrapped by errors about a length beyond the limits.
var errTooLong = errors.New("length beyond the limit")

// errFormat refuses a file that is not a capture.
type errFormat struct{ magic []byte }

func (e errFormat) Error() string {
	return fmt.Sprintf("capture file: starts with % x: neither pcap nor pcapng", e.magic)
}

// Hint returns how to record one.
func (errFormat) Hint() string { return "weir flow capture -w FILE or tcpdump -w FILE records one" }
