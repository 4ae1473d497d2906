package eyeballs

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/race"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// EventKind says what an Event tells.
type EventKind uint8

// What happens in a dial.
const (
	Asking     EventKind = iota // Types about Name
	Answered                    // one type of Types about Name: Addrs, Services or Err, by From
	Connecting                  // attempt Attempt to Addr begins
	Connected                   // its connection is up, the handshake begins
	Failed                      // it failed with Err
	Cancelled                   // it was given up, since the race is over
	Won                         // it is the connection that the dial returns
	Lost                        // the dial failed
)

// String names the kind in one word.
func (k EventKind) String() string {
	return [...]string{"asking", "answered", "connecting", "connected", "failed", "cancelled",
		"won", "lost"}[k]
}

// Event is one thing that happened in a dial. Which fields are set depends on
// Kind. Slices must not be changed.
type Event struct {
	Kind EventKind
	// At is the time since the dial began.
	At time.Duration

	Name     string
	Types    race.Types
	Addrs    []netip.Addr
	Services []svcb.Record
	Prefixes []netip.Prefix
	From     string

	Attempt int
	Addr    netip.AddrPort
	Err     error
}
