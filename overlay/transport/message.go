// Package transport seals and opens WireGuard's transport messages, in place: the framing and the
// padding around the cipher. Keys, counters and what was received before are the caller's.
//
// A message is a header of 16 bytes (type, the receiver's index of the session, counter), the
// sealed packet, which is padded, and a tag of 16 bytes. The counter is the nonce.
package transport

import (
	"crypto/cipher"
	"encoding/binary"
)

const (
	// Type is the first byte of a transport message. The next three are zero.
	Type = 4
	// HeaderSize is what is in front of a sealed packet.
	HeaderSize = 16
	// TagSize is what is behind it.
	TagSize = 16
	// Overhead is what sealing adds to a padded packet. A message of this size is a keepalive.
	Overhead = HeaderSize + TagSize
	// Tailroom is how many bytes behind a packet sealing may write to.
	Tailroom = multiple - 1 + TagSize

	// multiple is what the size of a packet is padded to a multiple of.
	multiple  = 16
	nonceSize = 12
)

// Padded is the size to which a packet of n bytes is padded. That hides its true size a little. It
// is not padded beyond the MTU; of a packet that is larger, the part beyond a multiple of the MTU
// counts. An MTU of 0 is none.
func Padded(n, mtu int) int {
	last := n
	if mtu > 0 && n > mtu {
		last = n % mtu
	}
	padded := (last + multiple - 1) &^ (multiple - 1)
	if mtu > 0 {
		padded = min(padded, mtu)
	}
	return n - last + padded
}

// Sealer seals packets of one session, one after the other.
type Sealer struct {
	aead   cipher.AEAD
	header [HeaderSize]byte
	nonce  [nonceSize]byte
}

// Use sets the key, and the index that the receiver gave to the session.
func (s *Sealer) Use(aead cipher.AEAD, receiver uint32) {
	s.aead = aead
	s.header = [HeaderSize]byte{Type}
	binary.LittleEndian.PutUint32(s.header[4:], receiver)
}

// Seal seals the packet of n bytes at offset at of b, in place, and returns the message. It
// overwrites the HeaderSize bytes in front of the packet and the Tailroom bytes behind it. A
// counter is never used twice with a key.
func (s *Sealer) Seal(b []byte, at, n, mtu int, counter uint64) []byte {
	padded := Padded(n, mtu)
	clear(b[at+n : at+padded])
	head := b[at-HeaderSize : at : at+padded+TagSize]
	binary.LittleEndian.PutUint64(s.header[8:], counter)
	binary.LittleEndian.PutUint64(s.nonce[4:], counter)
	copy(head, s.header[:])
	return s.aead.Seal(head, s.nonce[:], b[at:at+padded], nil)
}

// Opener opens messages.
type Opener struct {
	nonce [nonceSize]byte
}

// Session is the receiver's index of the session that a message names. Not ok is what is not a
// transport message, or too short for one.
func Session(message []byte) (index uint32, ok bool) {
	if len(message) < Overhead || binary.LittleEndian.Uint32(message) != Type {
		return 0, false
	}
	return binary.LittleEndian.Uint32(message[4:]), true
}

// Open opens a message, for which Session was ok, in place. It returns the packet, with its
// padding, and the counter; not ok is what was not sealed with the key. The message is lost then.
func (o *Opener) Open(aead cipher.AEAD, message []byte) (packet []byte, counter uint64, ok bool) {
	counter = binary.LittleEndian.Uint64(message[8:])
	binary.LittleEndian.PutUint64(o.nonce[4:], counter)
	sealed := message[HeaderSize:]
	packet, err := aead.Open(sealed[:0], o.nonce[:], sealed, nil)
	return packet, counter, err == nil
}
