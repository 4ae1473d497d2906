package pcap

import (
	"time"

	"github.com/weirnet/weir/packet"
)

// Limits of a file.
const (
	// MaxPacket bounds the bytes of one packet, for reading and writing. It is four times the
	// largest snapshot length of tcpdump.
	MaxPacket = 1 << 20
	// MaxInterfaces bounds the interfaces in one section of a pcapng file.
	MaxInterfaces = 1 << 16
	// maxOptions bounds the bytes of options in a block.
	maxOptions = 1 << 16
)

// Direction is the direction of a packet, seen from the capturing host.
type Direction uint8

// The directions, with the numbers of pcapng's epb_flags.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// Record is one captured packet.
type Record struct {
	Time      time.Time   // in UTC; zero if the file has none
	Data      []byte      // the captured bytes; valid until the next call of Next
	Len       int         // length of the packet on the wire, at least len(Data)
	Link      packet.Link // what Data starts with
	Interface string      // name of the interface; empty if the file has none
	Direction Direction
	Comment   string // pcapng: the comment on this packet
}

// Link types of capture files (tcpdump.org/linktypes.html).
const (
	linkNull     = 0
	linkEthernet = 1
	linkRawBSD   = 12
	linkRawOther = 14 // OpenBSD
	linkRaw      = 101
	linkLoop     = 108
	linkSLL      = 113
	linkIPv4     = 228
	linkIPv6     = 229
	linkSLL2     = 276
)

// link returns the link of a file's link type. ok is false if the decoder does not support it.
func link(n uint32) (l packet.Link, ok bool) {
	switch n {
	case linkNull:
		return packet.LinkNull, true
	case linkEthernet:
		return packet.LinkEthernet, true
	case linkRaw, linkRawBSD, linkRawOther, linkIPv4, linkIPv6:
		return packet.LinkRaw, true
	case linkLoop:
		return packet.LinkLoop, true
	case linkSLL:
		return packet.LinkSLL, true
	case linkSLL2:
		return packet.LinkSLL2, true
	}
	return 0, false
}

// linkType is the reverse of link.
func linkType(l packet.Link) (n uint16, ok bool) {
	switch l {
	case packet.LinkNull:
		return linkNull, true
	case packet.LinkEthernet:
		return linkEthernet, true
	case packet.LinkRaw:
		return linkRaw, true
	case packet.LinkLoop:
		return linkLoop, true
	case packet.LinkSLL:
		return linkSLL, true
	case packet.LinkSLL2:
		return linkSLL2, true
	}
	return 0, false
}
