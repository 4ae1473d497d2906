// Package flow knows what a conversation is: its key, its two sides, and how TCP, UDP, ICMP and SCTP packets move it. Everything
// here is a pure function; the clock is an argument. docs/design/0003-judgement.md is the specification.
package flow

// Key names a conversation in canonical order, so that packets of both directions have the same Key. It is comparable and
// has the layout that the kernel engine uses: 40 bytes, no padding.
//
// The end with the smaller (address, port) is the low end. IPv4 addresses are v4-mapped (::ffff:a.b.c.d).
type Key struct {
	LowHi, LowLo   uint64 // address of the low end
	HighHi, HighLo uint64 // address of the high end
	Ports          uint32 // port of the low end << 16 | port of the high end
	Proto          uint8
	Flow           uint8 // flow id of the Program (0: "default")
	_              uint16
}

// Dir says which end of a Key sent a packet.
type Dir uint8

// FromLow: the packet went from the low end to the high end.
const (
	FromLow Dir = iota
	FromHigh
)
