package overlay

import (
	"encoding/binary"
	"sync"
)

// handshakes recognizes copies of handshake messages. The library handles handshake messages by several workers at once and
// may take two copies that come together both for new: two copies of an initiation leave the ends with different keys,
// two copies of a response make a second session with the same keys and counters. The network may copy datagrams, and
// so may anybody on the way; the second one must not reach the library.
type handshakes struct {
	mu   sync.Mutex
	seen [handshakesKept]struct {
		mac  [16]byte
		when int64
	}
	next int
}

const (
	// handshakesKept is how many are remembered. Who sends more at the same time can push one out, and gains nothing: copies
	// that come one after the other are told by their time stamps and states.
	handshakesKept = 64
	// handshakeLife is how long a copy is one, ns.
	handshakeLife = int64(5e9)
)

// The places of the first message authentication code, and the sizes that have one.
const (
	macOfInitiation = 116
	macOfResponse   = 60
	sizeResponse    = 92
)

// isCopy says whether a packet is a copy of a handshake message that came before.
func (s *handshakes) isCopy(b []byte, now int64) bool {
	var mac [16]byte
	switch {
	case len(b) == sizeInitiation && b[0] == typeInitiation:
		mac = [16]byte(b[macOfInitiation:])
	case len(b) == sizeResponse && b[0] == typeResponse:
		mac = [16]byte(b[macOfResponse:])
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.seen {
		if e := &s.seen[i]; e.mac == mac && e.when != 0 && now-e.when < handshakeLife {
			return true
		}
	}
	s.seen[s.next].mac, s.seen[s.next].when = mac, now
	s.next = (s.next + 1) % len(s.seen)
	return false
}

// takes looks at a received packet before the device does. It is false for one that must not get there.
func (r *receiver) takes(b []byte, a *arrival, now int64) bool {
	if len(b) < 12 || b[0] == typeData {
		return true
	}
	if b[0] == typeSounding || b[0] == typeSounded {
		r.bind.sounded(b, a)
		return false
	}
	if r.bind.handshakes.isCopy(b, now) {
		r.bind.copies.Add(1)
		return false
	}
	if b[0] == typeResponse {
		index := binary.LittleEndian.Uint32(b[8:])
		if p := r.bind.initiator(index); p != nil {
			p.answered(index, &a.hop, now)
		}
	}
	return true
}
