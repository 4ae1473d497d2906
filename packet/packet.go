package packet

import (
	"encoding/binary"
	"net/netip"
)

// Packet is what the decoder found in one IP packet. It holds no pointers and
// no reference to the bytes, so it may be kept, copied and compared with ==.
//
// Decode sets every field, whatever was in the struct before. Which fields mean
// something in which case is fixed in docs/design/0002-decoder.md; a field
// that does not apply is zero.
//
// The fields are ordered so that a decoder can write neighbours with one store.
type Packet struct {
	// Addresses in network order as big-endian words. An IPv4 address
	// a.b.c.d is stored as ::ffff:a.b.c.d; since the decoder refuses such
	// addresses in an IPv6 header, the words alone tell the family.
	SrcHi, DstHi, SrcLo, DstLo uint64

	// Seq is the TCP sequence number, the SCTP verification tag, or bytes
	// 4 to 7 of an ICMP or ICMPv6 message (see ICMPID).
	Seq uint32
	// Ports is source<<16 | destination for TCP, UDP, UDP-Lite and SCTP.
	Ports uint32

	// Window is the TCP window as sent, not scaled.
	Window uint16
	// TCPFlags is the flag byte of TCP: FlagFIN to FlagCWR.
	TCPFlags uint8
	// TCPOffset is byte 12 of TCP: the data offset in words in the high half,
	// the reserved bits in the low half.
	TCPOffset uint8
	// Ack is the TCP acknowledgement field, also when the ACK flag is clear.
	Ack uint32

	// Payload is the offset in bytes of what follows the transport header
	// of TCP, UDP, UDP-Lite, SCTP (12 bytes) and ICMP (8 bytes); else L4.
	Payload uint16
	// L4 is the offset in bytes of the upper-layer header from the start
	// of the IP header. For a later fragment the fragment's data starts there.
	L4 uint16
	// ICMPCode and ICMPType are those of an ICMP or ICMPv6 message.
	ICMPCode, ICMPType uint8
	// FragOff is the fragment offset in bytes.
	FragOff uint16

	// Version is 4 or 6, and 0 when the IP header itself was refused.
	Version uint8
	// TOS is the type of service or the traffic class: DSCP<<2 | ECN.
	TOS uint8
	// ExtHdrs is the set of IPv6 extension headers seen: ExtHopByHop to ExtRouting0.
	ExtHdrs uint8
	// Reason says why the packet is malformed; ReasonNone means that it is fine.
	Reason Reason
	// Len is the length in bytes of the IP packet as its header tells it,
	// headers included. Bytes of the buffer beyond it are never looked at.
	Len uint32

	// IPID is the IPv4 identification, or that of the IPv6 fragment header.
	IPID uint32
	// Frag holds the fragment state (FragFirst, FragLater) in its two low
	// bits and the header's flags FragMF, FragDF, FragRF above.
	Frag uint8
	// IPOptions is the set of noteworthy options seen: OptSSRR to OptRouterAlert.
	IPOptions uint8
	// TTL is the time to live or the hop limit.
	TTL uint8
	// Proto is the upper-layer protocol after all extension headers. For a
	// later fragment it is what the header with the offset names next.
	Proto uint8

	// With 80 bytes instead of 72 a fresh Packet on the stack is cleared and
	// decoded in half the time: no store crosses two others.
	_ [8]byte
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

// Values of Packet.Frag. A packet that is whole, also an IPv6 "atomic
// fragment" (RFC 6946), has neither FragFirst nor FragLater.
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

// IP protocol numbers that the decoder knows by name.
const (
	ProtoHopByHop    uint8 = 0
	ProtoICMP        uint8 = 1
	ProtoIGMP        uint8 = 2
	ProtoTCP         uint8 = 6
	ProtoUDP         uint8 = 17
	ProtoRouting     uint8 = 43
	ProtoFragment    uint8 = 44
	ProtoGRE         uint8 = 47
	ProtoESP         uint8 = 50
	ProtoAH          uint8 = 51
	ProtoICMPv6      uint8 = 58
	ProtoNoNext      uint8 = 59
	ProtoDestination uint8 = 60
	ProtoSCTP        uint8 = 132
	ProtoUDPLite     uint8 = 136
)

// mapped is the upper half of the low word of an IPv4-mapped address.
const mapped = 0xffff << 32

// Src returns the source address, a plain IPv4 address for an IPv4 packet.
// It is the zero Addr when the IP header was refused.
func (p *Packet) Src() netip.Addr { return addr(p.SrcHi, p.SrcLo, p.Version) }

// Dst returns the destination address; see Src.
func (p *Packet) Dst() netip.Addr { return addr(p.DstHi, p.DstLo, p.Version) }

// addr makes an address from two words.
func addr(hi, lo uint64, version uint8) netip.Addr {
	switch version {
	case 4:
		return netip.AddrFrom4([4]byte{byte(lo >> 24), byte(lo >> 16), byte(lo >> 8), byte(lo)})
	case 6:
		var a [16]byte
		binary.BigEndian.PutUint64(a[:8], hi)
		binary.BigEndian.PutUint64(a[8:], lo)
		return netip.AddrFrom16(a)
	}
	return netip.Addr{}
}

// Words returns an address as the two words that Packet uses: IPv4 as
// ::ffff:a.b.c.d. A zone is ignored; the zero Addr gives zeros.
func Words(a netip.Addr) (hi, lo uint64) {
	if !a.IsValid() {
		return 0, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
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
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoUDPLite:
		return true
	}
	return false
}

// IsICMP reports whether ICMPType, ICMPCode and Seq are those of an ICMP
// message of the packet's own family.
func (p *Packet) IsICMP() bool {
	return p.Reason == ReasonNone && p.Frag&FragLater == 0 &&
		(p.Version == 4 && p.Proto == ProtoICMP || p.Version == 6 && p.Proto == ProtoICMPv6)
}

// ICMPID returns bytes 4 and 5 of an ICMP message: the identifier of echo,
// timestamp, information and address mask messages. In other types these bytes
// mean something else; see ICMPQuery.
func (p *Packet) ICMPID() uint16 { return uint16(p.Seq >> 16) }

// PayloadLen returns the number of bytes from Payload to the end of the IP
// packet. For TCP it is the length of the segment without SYN and FIN.
func (p *Packet) PayloadLen() int { return int(p.Len) - int(p.Payload) }

// IsFragment reports whether the packet is a part of a datagram.
func (p *Packet) IsFragment() bool { return p.Frag&fragState != 0 }
