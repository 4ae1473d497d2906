package firewall

import (
	"time"

	"net/netip"

	"github.com/weirnet/weir/packet"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	EventStart  EventKind = iota + 1 // a state was made
	EventEnd                         // a state ended
	EventDrop                        // a packet was dropped
	EventLog                         // a rule with log matched
	EventRefuse                      // a state was refused
)

// Event reports one event; every view of Weir is made from events.
type Event struct {
	Kind     EventKind
	Time     time.Duration
	Hook     Hook
	Proto    packet.Proto
	TCPFlags uint8
	Src, Dst netip.AddrPort
	Verdict  Verdict
	Packets  [2]uint64 // EventEnd: forward, reverse
	Bytes    [2]uint64
	Duration time.Duration // EventEnd
	Length   uint32        // of the IP packet that caused it, in bytes
}

// Captured is a frame as it arrived at a hook, with its verdict.
type Captured struct {
	Time     time.Duration
	Hook     Hook
	Verdict  Verdict
	Length   uint32 // of the whole frame
	Ethernet bool   // Data begins with an Ethernet header, else with an IP header
	Data     []byte // the first bytes of the frame
}
