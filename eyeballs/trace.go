package eyeballs

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events, and the fields that each sets besides At.
const (
	EventAsking     EventKind = iota // Name, Types: questions are sent
	EventAnswered                    // Name, Types (one), From; Addrs, Services, Prefixes or Err
	EventConnecting                  // Attempt, Addr: an attempt begins
	EventConnected                   // Attempt, Addr: the connection is up, the handshake begins
	EventFailed                      // Attempt, Addr, Err: the attempt failed
	EventCancelled                   // Attempt, Addr: it ends because the race is over
	EventWon                         // Attempt, Addr: the dial returns this connection
	EventLost                        // the dial failed
)

// String names the kind in one word.
func (k EventKind) String() string {
	return [...]string{"asking", "answered", "connecting", "connected", "failed", "cancelled",
		"won", "lost"}[k]
}

// Event is one thing that happened in a dial. Kind decides which fields are set. The receiver must
// not change the slices.
type Event struct {
	Kind EventKind
	// At is the time since the dial began.
	At time.Duration

	// Name and Types are the question. From is the source of the answer: hosts, cache, system, or
	// the address of a server. It is host if this host has no use for the question and did not send
	// it.
	Name     string
	Types    dns.Type
	Addrs    []netip.Addr
	Services []svcb.Record
	Prefixes []netip.Prefix
	From     string

	// Attempt is the number of the attempt in the dial, from 0. Err explains a failed attempt or a
	// missing answer.
	Attempt int
	Addr    netip.AddrPort
	Err     error
}
