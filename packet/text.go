package packet

import (
	"net/netip"
	"strconv"
)

// flagLetters are the TCP flags from the lowest bit on.
const flagLetters = "FSRPAUEC"

// A bitName names one bit of IPOptions or ExtHdrs.
type bitName struct {
	bit  uint8
	name string
}

var optionNames = []bitName{
	{OptSSRR, "ssrr"}, {OptLSRR, "lsrr"}, {OptRR, "rr"}, {OptTS, "ts"}, {OptRouterAlert, "ra"},
}

// extNames leaves ExtFragment out: the words frag and ipid imply it.
var extNames = []bitName{
	{ExtHopByHop, "hop"}, {ExtDestination, "dst"}, {ExtRouting, "rt"}, {ExtRouting0, "rt0"},
	{ExtAH, "ah"},
}

// String returns a summary of the packet: protocol, both ends, TCP flags or ICMP type and code, and
// unusual properties. AppendText writes every field.
func (p *Packet) String() string {
	var buf [96]byte
	return string(p.appendEnds(buf[:0]))
}

// appendEnds appends what String returns.
func (p *Packet) appendEnds(b []byte) []byte {
	if p.Version == 0 {
		b = append(b, "malformed "...)
		return append(b, p.Reason.String()...)
	}
	b = p.Proto.appendTo(b)
	b = p.appendEnd(append(b, ' '), p.Src(), p.SrcPort())
	b = p.appendEnd(append(b, " -> "...), p.Dst(), p.DstPort())
	switch {
	case p.HasPorts() && p.Proto == ProtoTCP:
		b = appendFlags(append(b, " flags "...), p.TCPFlags)
	case p.IsICMP():
		b = appendNumber(b, " type ", uint64(p.ICMPType()))
		b = appendNumber(b, " code ", uint64(p.ICMPCode()))
	}
	if p.IsFragment() {
		b = appendNumber(b, " frag ", uint64(p.FragOff()))
		if p.Frag&FragMF != 0 {
			b = append(b, " mf"...)
		}
	}
	if p.Reason != ReasonNone {
		b = append(b, " malformed "...)
		b = append(b, p.Reason.String()...)
	}
	return b
}

// AppendText appends the text form of the packet, which ParseText reads: every field
// that differs from the default of ParseText. It never fails.
func (p *Packet) AppendText(b []byte) ([]byte, error) {
	b = p.appendEnds(b)
	if p.Version == 0 {
		return b, nil
	}
	word := func(name string, n, ifAbsent uint64) {
		if n != ifAbsent {
			b = appendNumber(b, name, n)
		}
	}
	switch {
	case p.HasPorts() && p.Proto == ProtoTCP:
		word(" seq ", uint64(p.Seq), 0)
		word(" ack ", uint64(p.Ack), 0)
		word(" win ", uint64(p.Window()), 0)
	case p.HasPorts() && p.Proto == ProtoSCTP:
		word(" vtag ", uint64(p.Seq), 0)
	case p.IsICMP():
		word(" rest ", uint64(p.Seq), 0)
	}
	word(" ttl ", uint64(p.TTL), 64)
	word(" tos ", uint64(p.TOS), 0)
	if p.IPID != 0 || p.ExtHdrs&ExtFragment != 0 {
		b = appendNumber(b, " ipid ", uint64(p.IPID))
	}
	if p.Frag&FragDF != 0 {
		b = append(b, " df"...)
	}
	if p.Frag&FragRF != 0 {
		b = append(b, " rf"...)
	}
	b = appendBits(b, " opt ", p.IPOptions, optionNames)
	b = appendBits(b, " ext ", p.ExtHdrs, extNames)
	return appendNumber(b, " len ", uint64(p.Len())), nil
}

// appendEnd appends an address, with the port when the packet has ports.
func (p *Packet) appendEnd(b []byte, a netip.Addr, port uint16) []byte {
	if p.HasPorts() {
		return netip.AddrPortFrom(a, port).AppendTo(b)
	}
	return a.AppendTo(b)
}

// appendFlags appends TCP flags as letters, "none" when there are none.
func appendFlags(b []byte, flags uint8) []byte {
	if flags == 0 {
		return append(b, "none"...)
	}
	for i := range 8 {
		if flags>>i&1 != 0 {
			b = append(b, flagLetters[i])
		}
	}
	return b
}

func appendNumber(b []byte, word string, n uint64) []byte {
	return strconv.AppendUint(append(b, word...), n, 10)
}

// appendBits appends a word and a comma list of the names of set bits, or nothing.
func appendBits(b []byte, word string, set uint8, names []bitName) []byte {
	sep := word
	for _, n := range names {
		if set&n.bit != 0 {
			b = append(append(b, sep...), n.name...)
			sep = ","
		}
	}
	return b
}
