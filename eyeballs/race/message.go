package race

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/svcb"
)

// Types is a set of questions.
type Types uint8

// The questions a race can ask. They are asked back to back in the order HTTPS,
// AAAA, A (HEv3 section 4.1).
const (
	A Types = 1 << iota
	AAAA
	HTTPS
	// Prefix64 asks for the NAT64 prefixes of the network.
	Prefix64
	// PTR asks for the name of an address. It is a question of the resolver that no race asks.
	PTR
)

// String names the types in t, in the order in which they are asked.
func (t Types) String() string {
	s := ""
	for _, one := range [...]struct {
		t    Types
		name string
	}{{HTTPS, "HTTPS"}, {AAAA, "AAAA"}, {A, "A"}, {Prefix64, "PREF64"}, {PTR, "PTR"}} {
		if t&one.t == 0 {
			continue
		}
		if s != "" {
			s += "+"
		}
		s += one.name
	}
	return s
}

// Endpoint is something to connect to.
type Endpoint struct {
	// Addr is the address to connect to.
	Addr netip.AddrPort
	// Known is the address as the sort should see it: the same as Addr's, but
	// the IPv4 address where Addr was synthesised for a NAT64.
	Known netip.Addr
	// Service is the record that led here, nil without one.
	Service *svcb.Record
}

// Answer is what became of one question.
type Answer struct {
	// Name and Type repeat the question. Type has exactly one bit.
	Name string
	Type Types
	// Addrs answers A and AAAA, Services answers HTTPS, Prefixes answers
	// Prefix64. All empty means no: the record does not exist or could not be had.
	Addrs    []netip.Addr
	Services []svcb.Record
	Prefixes []netip.Prefix
	// NoName says that the name itself does not exist.
	NoName bool
}

// EventKind says what happened.
type EventKind uint8

// The events.
const (
	Begin     EventKind = iota
	Answered            // Answer holds it
	Connected           // attempt ID has a transport connection, its handshake is still to come
	Finished            // attempt ID is ready for use
	Failed              // attempt ID failed
	Tick                // the time given by Wake has come
	Abort               // the caller gave up
)

// Event is something that happened outside.
type Event struct {
	Kind   EventKind
	ID     int
	Answer Answer
}

// CommandKind says what to do.
type CommandKind uint8

// The commands.
const (
	Ask     CommandKind = iota // ask Types about Name
	Connect                    // begin attempt ID to Endpoint
	Cancel                     // give attempt ID up
	Wake                       // send Tick at At
	Win                        // attempt ID has won; all others have been cancelled
	Lose                       // there is nothing left to try
)

// Command is something the runner must do.
type Command struct {
	Kind     CommandKind
	ID       int
	Endpoint Endpoint
	Name     string
	Types    Types
	At       time.Duration
}
