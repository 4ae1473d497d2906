package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the protocol. Both ends refuse others.
const Version = 3

// MaxFrame is the largest body. A client that has not proved who it is may send MaxFirst.
const (
	MaxFrame = 2 << 20
	MaxFirst = 8 << 10
)

// headerSize is the length and the type.
const headerSize = 5

// Type is what a frame is.
type Type byte

// Frames of a client.
const (
	TypeHello   Type = iota + 1 // Hello: the first frame
	TypeFollow                  // Follow
	TypeDigests                 // 256 digests
	TypeRead                    // Read
	TypeCommit                  // Commit
	TypeWatch                   // Watch
	TypeCancel                  // Number of a watch
	TypeJoin                    // Join: the first frame of a host without a certificate
)

// Frames of weir-store.
const (
	TypeWelcome  Type = iota + 32 // Welcome: the answer to Hello
	TypeAsk                       // asks for the digests, no body
	TypeCopy                      // Copy
	TypeBatch                     // Batch
	TypeProgress                  // Progress
	TypeWait                      // Wait; the connection ends
	TypeResult                    // Result
	TypeEvent                     // Event of a watch
	TypeJoined                    // the answer to Join: JSON
	TypeRefused                   // Refused; the connection ends
)

var (
	errShort = errors.New("the message ends too early")
	errLong  = errors.New("the message has more than it should")
)

// Frame returns a frame as it is sent.
func Frame(t Type, body []byte) []byte {
	return append(begin(t, len(body)), body...)
}

// begin returns a header that finish completes.
func begin(t Type, size int) []byte {
	frame := make([]byte, headerSize, headerSize+size)
	binary.BigEndian.PutUint32(frame, uint32(size))
	frame[4] = byte(t)
	return frame
}

func finish(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-headerSize))
	return frame
}

// ReadFrame reads a frame whose body has at most limit bytes. The memory that it takes follows what
// arrives, not what the length promises.
func ReadFrame(r io.Reader, limit int) (Type, []byte, error) { return ReadFrameInto(r, limit, nil) }

// ReadFrameInto is ReadFrame with the body in memory that the caller has, if there is enough. What
// the functions of this package decode from a frame of weir-store keeps none of it.
func ReadFrameInto(r io.Reader, limit int, memory []byte) (Type, []byte, error) {
	if cap(memory) < headerSize {
		memory = make([]byte, headerSize)
	}
	header := memory[:headerSize]
	if _, err := io.ReadFull(r, header); err != nil {
		return 0, nil, err
	}
	t, size := Type(header[4]), int(binary.BigEndian.Uint32(header))
	if size < 0 || size > limit {
		return t, nil, fmt.Errorf("a frame of type %d has %d bytes, at most %d are possible", t,
			size, limit)
	}
	const step = 64 << 10
	if n := min(size, max(step, cap(memory))); n > cap(memory) {
		memory = make([]byte, n)
	}
	body := memory[:min(size, cap(memory))]
	for have := 0; ; {
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return t, nil, err
		}
		if have = len(body); have == size {
			return t, body, nil
		}
		body = append(body, make([]byte, min(size-have, have))...)
	}
}

// reader reads a body. The first error stays.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	// One number has one form, so that what is decoded encodes to the same bytes.
	if n > 1 && r.rest[n-1] == 0 {
		r.fail(errors.New("a number is longer than it has to be"))
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// revision reads a number that is not negative.
func (r *reader) revision() int64 {
	v := int64(r.uint())
	if v < 0 {
		r.fail(errors.New("a revision is below zero"))
		return 0
	}
	return v
}

// count reads how many of something follow, of which each takes at least one byte.
func (r *reader) count(limit int) int {
	v := r.uint()
	if v > uint64(limit) || v > uint64(len(r.rest)) {
		r.fail(fmt.Errorf("%d parts, at most %d are possible", v, min(limit, len(r.rest))))
		return 0
	}
	return int(v)
}

// bytes returns a part of the body: the caller does not change it.
func (r *reader) bytes() []byte {
	v := r.uint()
	if v > uint64(len(r.rest)) {
		r.fail(errShort)
		return nil
	}
	b := r.rest[:v:v]
	r.rest = r.rest[v:]
	return b
}

func (r *reader) string() string { return string(r.bytes()) }

func (r *reader) fixed(into []byte) {
	if len(r.rest) < len(into) {
		r.fail(errShort)
		return
	}
	r.rest = r.rest[copy(into, r.rest):]
}

func (r *reader) bool() bool {
	v := r.uint()
	if v > 1 {
		r.fail(fmt.Errorf("%d is neither true nor false", v))
	}
	return v == 1
}

// end returns the first error, or that something follows.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		return errLong
	}
	return r.err
}

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendBytes[T []byte | string](b []byte, v T) []byte {
	return append(appendUint(b, uint64(len(v))), v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
