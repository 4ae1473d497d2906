package packet

import "net/netip"

// Packet is a decoded IP packet: 64 bytes, one cache line. It holds no pointers and no reference to
// the bytes, so it may be kept, copied and compared with ==.
//
// Decode sets every field, whatever was in the struct before. A field that does not apply is zero;
// docs/design/0002-decoder.md says which fields apply in which case.
//
// The exported fields are what the headers say, each with one meaning in every packet, in the form
// that filters compare and tables store. The methods return values that depend on several fields,
// and the addresses as netip.Addr.
//
// Methods and functions that also take the packet's bytes need the bytes that it was decoded from,
// unchanged. With other bytes the result is meaningless, and the call may panic.
type Packet struct {
	// SrcIP and DstIP are the addresses in network order. An IPv4 address
	// a.b.c.d is ::ffff:a.b.c.d; since the decoder refuses such
	// addresses in an IPv6 header, the bytes alone identify the family.
	SrcIP, DstIP [16]byte

	// Seq is the TCP sequence number, the SCTP verification tag, or bytes
	// 4 to 7 of an ICMP or ICMPv6 message (see ICMPID).
	Seq uint32
	// Ports is source<<16 | destination for TCP, UDP, UDP-Lite and SCTP.
	Ports uint32

	// The fields are ordered so that a decoder can write neighbours with one store.
	//
	// aux depends on the kind of packet: the window of TCP as sent, not scaled; type<<8 | code of
	// ICMP and ICMPv6; the offset in bytes of a later fragment. See Window, ICMPType, ICMPCode and
	// FragOff.
	aux uint16
	// TCPFlags is the flag byte of TCP: FlagFIN to FlagCWR.
	TCPFlags uint8
	// offset has the length of the transport header in words in the high half. For TCP it is byte
	// 12 as it is, with the reserved bits in the low half. The length is 2 for UDP, UDP-Lite and
	// ICMP, 3 for SCTP, and 0 else.
	offset uint8
	// Ack is the TCP acknowledgement field, also when the ACK flag is clear.
	Ack uint32

	// L4 is the offset in bytes of the upper-layer header from the start
	// of the IP header. For a later fragment the fragment's data starts there.
	L4 uint16
	// ExtHdrs is the set of IPv6 extension headers seen: ExtHopByHop to ExtRouting0.
	ExtHdrs uint8
	// Reason is why the packet is malformed; ReasonNone means that it is well-formed.
	Reason Reason
	// rest is the number of bytes from L4 to the end of the IP packet; see Len.
	rest uint16
	// TOS is the type of service or the traffic class: DSCP<<2 | ECN.
	TOS uint8
	// Version is 4 or 6, and 0 when the IP header itself was refused.
	Version uint8

	// IPID is the IPv4 identification, or that of the IPv6 fragment header.
	IPID uint32
	// Frag holds the fragment state (FragFirst, FragLater) in its two low
	// bits and the header's flags FragMF, FragDF, FragRF above.
	Frag uint8
	// IPOptions is the set of these options seen: OptSSRR to OptRouterAlert.
	IPOptions uint8
	// TTL is the time to live or the hop limit.
	TTL uint8
	// Proto is the upper-layer protocol after all extension headers. For a later fragment it is the
	// number in the IPv4 header or the IPv6 fragment header.
	Proto Proto
}

// Bits of Packet.TCPFlags.
const (
	FlagFIN uint8 = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
	FlagURG
	FlagECE
	FlagCWR
)

// Values of Packet.Frag. A whole packet, including an IPv6 "atomic fragment" (RFC 6946), has
// neither FragFirst nor FragLater.
const (
	FragFirst uint8 = 0x01 // offset 0, more fragments follow
	FragLater uint8 = 0x02 // offset above 0
	FragMF    uint8 = 0x20 // more fragments
	FragDF    uint8 = 0x40 // do not fragment (IPv4)
	FragRF    uint8 = 0x80 // reserved flag (IPv4)

	fragState = FragFirst | FragLater
)

// Bits of Packet.IPOptions. The first four are those of ipfw's ipoptions.
const (
	OptSSRR        uint8 = 1 << iota // strict source route
	OptLSRR                          // loose source route
	OptRR                            // record route
	OptTS                            // timestamp
	OptRouterAlert                   // IPv4 option 148 (RFC 2113) or hop-by-hop option 5 (RFC 2711)
)

// Bits of Packet.ExtHdrs.
const (
	ExtHopByHop uint8 = 1 << iota
	ExtRouting
	ExtDestination
	ExtFragment
	ExtAH
	ExtRouting0 // a routing header of type 0 (deprecated by RFC 5095), beside ExtRouting
)

// Src returns the source address, a plain IPv4 address for an IPv4 packet.
// It is the zero Addr when the IP header was refused.
func (p *Packet) Src() netip.Addr { return addr(&p.SrcIP, p.Version) }

// Dst returns the destination address; see Src.
func (p *Packet) Dst() netip.Addr { return addr(&p.DstIP, p.Version) }

// addr makes an address from its bytes.
func addr(ip *[16]byte, version uint8) netip.Addr {
	switch version {
	case 4:
		return netip.AddrFrom4([4]byte(ip[12:]))
	case 6:
		return netip.AddrFrom16(*ip)
	}
	return netip.Addr{}
}

// SrcWords returns the source address as two big-endian words, IPv4 as ::ffff:a.b.c.d.
func (p *Packet) SrcWords() (hi, lo uint64) {
	return be.Uint64(p.SrcIP[:8]), be.Uint64(p.SrcIP[8:])
}

// DstWords returns the destination address as two big-endian words; see SrcWords.
func (p *Packet) DstWords() (hi, lo uint64) {
	return be.Uint64(p.DstIP[:8]), be.Uint64(p.DstIP[8:])
}

// AddrWords returns an address as two big-endian words, IPv4 as ::ffff:a.b.c.d. A zone is ignored;
// the zero Addr gives zeros.
func AddrWords(a netip.Addr) (hi, lo uint64) {
	if !a.IsValid() {
		return 0, 0
	}
	b := a.As16()
	return be.Uint64(b[:8]), be.Uint64(b[8:])
}

// SrcPort returns the source port of TCP, UDP, UDP-Lite or SCTP, else 0.
func (p *Packet) SrcPort() uint16 { return uint16(p.Ports >> 16) }

// DstPort returns the destination port of TCP, UDP, UDP-Lite or SCTP, else 0.
func (p *Packet) DstPort() uint16 { return uint16(p.Ports) }

// HasPorts reports whether the ports of the packet are known: a protocol with
// ports, a whole packet or a first fragment, and nothing malformed.
func (p *Packet) HasPorts() bool {
	if p.Reason != ReasonNone || p.Frag&FragLater != 0 {
		return false
	}
	return p.Proto.HasPorts()
}

// IsICMP reports whether ICMPType, ICMPCode and Seq are those of an ICMP
// message of the packet's own family.
func (p *Packet) IsICMP() bool {
	return p.Reason == ReasonNone && p.Frag&FragLater == 0 &&
		(p.Version == 4 && p.Proto == ProtoICMP || p.Version == 6 && p.Proto == ProtoICMPv6)
}

// Len returns the length in bytes of the IP packet according to its header,
// headers included. Bytes of the buffer beyond it are never read.
func (p *Packet) Len() uint32 { return uint32(p.L4) + uint32(p.rest) }

// PayloadOffset returns the offset in bytes, from the start of the IP header, of what follows the
// transport header of TCP, UDP, UDP-Lite, SCTP (12 bytes) and ICMP (8 bytes). For other protocols
// it returns L4.
func (p *Packet) PayloadOffset() uint16 { return p.L4 + uint16(p.offset>>4<<2) }

// PayloadLen returns the number of bytes from PayloadOffset to the end of the IP
// packet. For TCP it is the length of the segment without SYN and FIN.
func (p *Packet) PayloadLen() int { return int(p.rest) - int(p.offset>>4<<2) }

// Payload returns the bytes that follow the transport header, up to the end of the IP packet. They
// are a part of b, which holds the bytes that p was decoded from. It is nil when p is malformed.
// For a later fragment it is the fragment's data.
func (p *Packet) Payload(b []byte) []byte {
	if p.Reason != ReasonNone {
		return nil
	}
	return b[p.PayloadOffset():p.Len():p.Len()]
}

// Window returns the window of a TCP segment as sent, not scaled.
func (p *Packet) Window() uint16 { return p.aux }

// ICMPType returns the type of an ICMP or ICMPv6 message; see IsICMP.
func (p *Packet) ICMPType() uint8 { return uint8(p.aux >> 8) }

// ICMPCode returns the code of an ICMP or ICMPv6 message; see IsICMP.
func (p *Packet) ICMPCode() uint8 { return uint8(p.aux) }

// FragOff returns the offset in bytes of a fragment, 0 for a packet that is whole.
func (p *Packet) FragOff() uint16 {
	if p.Frag&FragLater == 0 {
		return 0
	}
	return p.aux
}

// ICMPID returns bytes 4 and 5 of an ICMP message: the identifier of echo,
// timestamp, information and address mask messages. In other types these bytes
// mean something else; see ICMPQuery.
func (p *Packet) ICMPID() uint16 { return uint16(p.Seq >> 16) }

// IsFragment reports whether the packet is a part of a datagram.
func (p *Packet) IsFragment() bool { return p.Frag&fragState != 0 }
