package proxy

import (
	"io"
	"net"
)

// reader reads the few bytes of a handshake from a connection with as few system calls as possible.
// It keeps what it read beyond them.
type reader struct {
	conn     net.Conn
	buf      [1024]byte
	from, to int
}

// fill reads until the buffer holds n bytes. n must not exceed the size of the buffer.
func (r *reader) fill(n int) error {
	for r.to-r.from < n {
		if r.from > 0 && r.from+n > len(r.buf) {
			r.to = copy(r.buf[:], r.buf[r.from:r.to])
			r.from = 0
		}
		got, err := r.conn.Read(r.buf[r.to:])
		r.to += got
		if err != nil && r.to-r.from < n {
			if err == io.EOF && r.to > r.from {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// peek returns the next byte without consuming it.
func (r *reader) peek() (byte, error) {
	if err := r.fill(1); err != nil {
		return 0, err
	}
	return r.buf[r.from], nil
}

// take returns the next n bytes, which are valid until the next call.
func (r *reader) take(n int) ([]byte, error) {
	if err := r.fill(n); err != nil {
		return nil, err
	}
	b := r.buf[r.from : r.from+n]
	r.from += n
	return b, nil
}

// rest returns a copy of the bytes that were read but not taken.
func (r *reader) rest() []byte {
	return append([]byte(nil), r.buf[r.from:r.to]...)
}
