package overlay

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// handshakes remembers the handshake messages that came lately.
//
// Several workers of the library handle them at once, and may accept both of two copies that come
// together: two copies of an initiation leave the ends with different keys, two copies of a
// response make a second session with the same keys and counters. The network may duplicate
// datagrams, and so may an attacker on the path; the second one must not reach the library.
// Messages are the same only if all of their bytes are: an attacker can send a message that shares
// a part with a genuine one before that one comes.
//
// The response to an initiation, which the library makes for the genuine one alone, goes to where
// that came from: its sender index identifies it. The first message with an index counts, so that
// an attacker who sees one cannot draw the response to itself by another.
type handshakes struct {
	seed maphash.Seed

	mu    sync.Mutex
	seen  [handshakesKept]handshakeEntry
	next  int
	begun map[uint32]int // index in seen of the initiation with a sender index
}

// handshakeEntry is what is remembered of a handshake message.
type handshakeEntry struct {
	sum   uint64 // of all of it
	when  int64
	index uint32 // of an initiation
	from  *path  // nil for a response
}

const (
	// handshakesKept is how many are remembered: all that wait in the library's queue, and as many
	// more. A sender of more at the same time can evict one, and gains little: the library
	// recognises duplicates that come one after the other by their time stamps and states, and a
	// response goes to where the peer last sent from.
	handshakesKept = 2048
	// duplicatesKept is how many of the newest are compared.
	duplicatesKept = 64
	// handshakeLife is how long a copy counts as a duplicate, ns.
	handshakeLife = int64(5e9)
)

const sizeResponse = 92

func newHandshakes() *handshakes {
	return &handshakes{seed: maphash.MakeSeed(), begun: make(map[uint32]int, handshakesKept)}
}

// isDuplicate reports whether a packet is a copy of a handshake message that came before. It
// remembers one that is not.
func (s *handshakes) isDuplicate(b []byte, from *path, now int64) bool {
	m := handshakeEntry{when: now}
	switch {
	case len(b) == sizeInitiation && b[0] == typeInitiation:
		m.index, m.from = binary.LittleEndian.Uint32(b[4:]), from
	case len(b) == sizeResponse && b[0] == typeResponse:
	default:
		return false
	}
	m.sum = maphash.Bytes(s.seed, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := 1; k <= duplicatesKept; k++ {
		if e := &s.seen[(s.next-k+handshakesKept)%handshakesKept]; e.sum == m.sum &&
			s.lives(e, now) {
			return true
		}
	}
	old := &s.seen[s.next]
	if old.from != nil && s.begun[old.index] == s.next {
		delete(s.begun, old.index)
	}
	if m.from != nil {
		if at, known := s.begun[m.index]; !known || !s.lives(&s.seen[at], now) {
			s.begun[m.index] = s.next
		}
	}
	*old = m
	s.next = (s.next + 1) % handshakesKept
	return false
}

func (s *handshakes) lives(e *handshakeEntry, now int64) bool {
	return e.when != 0 && now-e.when < handshakeLife
}

// initiatorPath returns the path on which the initiation with a sender index came, or nil.
func (s *handshakes) initiatorPath(index uint32, now int64) *path {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.begun[index]; known && s.lives(&s.seen[at], now) {
		return s.seen[at].from
	}
	return nil
}

// accept reports whether a received packet may go to the device. It handles PMTU probes itself.
func (r *receiver) accept(b []byte, a *remoteEndpoint, now int64) bool {
	if len(b) < 12 || b[0] == typeData {
		return true
	}
	if b[0] == typeProbe || b[0] == typeProbeAck {
		r.bind.handleProbe(b, a)
		return false
	}
	if r.bind.handshakes.isDuplicate(b, &a.path, now) {
		r.bind.duplicates.Add(1)
		return false
	}
	if b[0] == typeResponse {
		index := binary.LittleEndian.Uint32(b[8:])
		if p := r.bind.initiator(index); p != nil {
			p.answered(index, &a.path, now)
		}
	}
	return true
}
