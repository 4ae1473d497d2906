package race

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
)

// Endpoint is something to connect to.
type Endpoint struct {
	// Addr is the address to connect to.
	Addr netip.AddrPort
	// Known is the address that the sort uses. It differs from Addr's where Addr was synthesised
	// for a NAT64: then it is the IPv4 address.
	Known netip.Addr
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events, and the fields that each sets.
const (
	Begin     EventKind = iota
	Answered            // Answer: one question is answered
	Connected           // ID: the attempt has a transport connection and starts its handshake
	Finished            // ID: the attempt is ready for use
	Failed              // ID: the attempt failed
	Tick                // the time of the last Wake has come
	Abort               // the caller gave up
)

// Event is something that happened outside the machine.
type Event struct {
	Kind   EventKind
	ID     int
	Answer dns.Answer
}

// CommandKind is the kind of a Command.
type CommandKind uint8

// The kinds of commands, and the fields that each sets.
const (
	Query   CommandKind = iota // Name, Types: look them up
	Connect                    // ID, Endpoint: begin an attempt
	Cancel                     // ID: give the attempt up
	Wake                       // At: send Tick then
	Win                        // ID: the attempt has won; all others have been cancelled
	Lose                       // nothing is left to try
)

// Command is something that the runner must do.
type Command struct {
	Kind     CommandKind
	ID       int
	Endpoint Endpoint
	Name     string
	Types    dns.Type
	At       time.Duration
}
