// Package firewall defines what all engines share. These are the hook at which a packet is
// evaluated, the verdict, its reason, the counters, the event that reports it, and the Engine that
// every implementation provides.
//
// Two engines are in the packages below: soft, which other programs may use, and kernel. Package
// enginetest tests that an engine behaves like them. Its Run plays random rules and packets to the
// engine and to a reference model, and shows a small case in which they differ. It is for tests,
// and may change with every version.
//
// Times are what the monotonic clock of the engine shows, as a time.Duration since its start. It
// costs what an int64 costs; views turn it into wall time.
package firewall

import "time"

// Direction is the side of an interface on which a packet is evaluated.
type Direction uint8

// In: the packet comes from an interface. Out: it leaves through one.
const (
	In Direction = iota
	Out
)

// Hook is where a packet is evaluated. Interfaces are kernel indexes, 0 means none. Out packets of
// the host itself have no Recv.
type Hook struct {
	Dir  Direction
	Recv uint32
	Xmit uint32
}

// Link returns the index of the interface on which the packet was received or through which it is
// sent.
func (h Hook) Link() uint32 {
	if h.Dir == Out {
		return h.Xmit
	}
	return h.Recv
}

// Verdict is the result of evaluating one packet.
type Verdict struct {
	Pass   bool
	Reason Reason // why it was dropped, or ReasonRule / ReasonEssential / ReasonNotIP
	Rule   uint16 // number of the rule that decided; 0: before the rules
	Slot   uint16 // slot of that rule in the Program; meaningless when Rule is 0
	Answer Answer // the packet to send back
	Code   uint8  // ICMP code of an unreachable answer
	State  StateUse
	// Fills the two words that one store writes. A struct with an array is returned in memory;
	// without it, each field would pass through a register of its own: 2 ns of a packet.
	_ [6]uint8
}

// Answer is the kind of packet to send in answer to a refused packet.
type Answer uint8

// The answers.
const (
	AnswerNone Answer = iota
	AnswerReset
	AnswerUnreach  // ICMP destination unreachable, Verdict.Code
	AnswerUnreach6 // ICMPv6 destination unreachable, Verdict.Code
	AnswerCookie   // SYN cookie, by the kernel engine alone
)

// StateUse is what a packet did to a state.
type StateUse uint8

// The uses.
const (
	StateNone      StateUse = iota
	StateHit                // found and counted
	StateNew                // made
	StateUntouched          // found, passed by its rule, not counted
)

// Input is the input of an evaluation besides the packet's bytes.
type Input struct {
	Hook   Hook
	Now    time.Duration // monotonic
	Random uint32        // for prob
	Tags   []uint16      // tags that the packet carries already
	// Segments has an element for each packet of a batch, or one for the one packet. It is how many
	// bytes follow the headers in each segment of a GSO or GRO packet, and 0 for other packets.
	// Pipes count what the segments have on the wire. It may be nil, and is not kept.
	Segments []uint16
}
