package packet

import "encoding/binary"

var (
	be = binary.BigEndian
)

// Decode reads the IP packet in b, which starts with the IP header, and sets
// every field of p. It returns p.Reason. Bytes of b beyond the length in the
// IP header are ignored; p keeps no reference to b. It does not allocate and
// does not verify checksums (a checksum may be left to the card).
//
// The order of the checks, which is the same in the kernel engine, is in
// docs/design/0002-decoder.md.
func (p *Packet) Decode(b []byte) Reason {
	if len(b) < 20 {
		*p = Packet{Reason: ReasonShort}
		return ReasonShort
	}
	switch b[0] >> 4 {
	case 4:
		return p.decode4(b)
	case 6:
		return p.decode6(b)
	}
	return p.refuse(ReasonVersion)
}

// DecodeBatch decodes bufs[i] into out[i] for every i that both slices have
// and returns how many that are.
func DecodeBatch(bufs [][]byte, out []Packet) int {
	n := min(len(bufs), len(out))
	for i := range n {
		out[i].Decode(bufs[i])
	}
	return n
}

// refuse empties p: the IP header itself is malformed.
func (p *Packet) refuse(r Reason) Reason {
	*p = Packet{Reason: r}
	return r
}

// stop ends a decode after the IP header was read: the fields of the network
// layer stay, those of the transport layer are zero.
func (p *Packet) stop(r Reason) Reason {
	p.Ports, p.Seq, p.Ack, p.Window = 0, 0, 0, 0
	p.TCPFlags, p.ICMPType, p.ICMPCode = 0, 0, 0
	p.Payload = p.L4
	p.Reason = r
	return r
}

// decode4 reads an IPv4 packet of at least 20 bytes.
func (p *Packet) decode4(b []byte) Reason {
	ihl := int(b[0]&15) * 4
	if ihl < 20 {
		return p.refuse(ReasonIHL)
	}
	total := int(be.Uint16(b[2:4]))
	if total < ihl || total > len(b) {
		return p.refuse(ReasonLength)
	}
	b = b[:total]
	p.SrcHi, p.SrcLo = 0, mapped|uint64(be.Uint32(b[12:16]))
	p.DstHi, p.DstLo = 0, mapped|uint64(be.Uint32(b[16:20]))
	p.IPID = uint32(be.Uint16(b[4:6]))
	p.Len = uint32(total)
	p.L4 = uint16(ihl)
	frag := be.Uint16(b[6:8])
	p.FragOff = 0
	p.Frag = uint8(frag>>8) & (FragMF | FragDF | FragRF)
	p.Version, p.Proto, p.TTL, p.TOS = 4, b[9], b[8], b[1]
	p.IPOptions, p.ExtHdrs = 0, 0
	if ihl > 20 {
		if r := p.options4(b[20:ihl]); r != ReasonNone {
			return p.stop(r)
		}
	}
	if frag&0x3fff != 0 {
		if done := p.fragment4(b, frag); done {
			return p.Reason
		}
	}
	return p.transport(b)
}

// decode6 reads an IPv6 packet.
func (p *Packet) decode6(b []byte) Reason {
	if len(b) < 40 {
		return p.refuse(ReasonShort)
	}
	plen := int(be.Uint16(b[4:6]))
	if plen == 0 && b[6] == ProtoHopByHop {
		return p.refuse(ReasonJumbo)
	}
	total := 40 + plen
	if total > len(b) {
		return p.refuse(ReasonLength)
	}
	b = b[:total]
	srcHi, srcLo := be.Uint64(b[8:16]), be.Uint64(b[16:24])
	dstHi, dstLo := be.Uint64(b[24:32]), be.Uint64(b[32:40])
	if isMapped(srcHi, srcLo) || isMapped(dstHi, dstLo) {
		return p.refuse(ReasonMapped)
	}
	p.SrcHi, p.SrcLo, p.DstHi, p.DstLo = srcHi, srcLo, dstHi, dstLo
	p.IPID = 0
	p.Len = uint32(total)
	p.L4 = 40
	p.FragOff, p.Frag = 0, 0
	p.Version, p.Proto, p.TTL = 6, b[6], b[7]
	p.TOS = b[0]<<4 | b[1]>>4
	p.IPOptions, p.ExtHdrs = 0, 0
	if isExtension(p.Proto) {
		if done := p.extensions(b); done {
			return p.Reason
		}
	}
	return p.transport(b)
}

// isMapped reports whether the words are an IPv4-mapped address.
func isMapped(hi, lo uint64) bool { return hi == 0 && lo>>32 == 0xffff }

// transport reads the header at p.L4 and ends the decode. b ends where the IP
// packet ends and p.L4 is within it.
func (p *Packet) transport(b []byte) Reason {
	t := b[p.L4:]
	first := p.Frag&FragFirst != 0
	p.Ports, p.Seq, p.Ack, p.Window = 0, 0, 0, 0
	p.TCPFlags, p.ICMPType, p.ICMPCode = 0, 0, 0
	p.Payload = p.L4
	p.Reason = ReasonNone
	switch p.Proto {
	case ProtoTCP:
		if len(t) < 20 {
			return p.shortTransport()
		}
		hl := int(t[12]>>4) * 4
		if hl < 20 {
			return p.stop(ReasonTCPOffset)
		}
		if hl > len(t) {
			if first {
				return p.stop(ReasonFragTiny)
			}
			return p.stop(ReasonTCPOffset)
		}
		p.Ports = be.Uint32(t[0:4])
		p.Seq = be.Uint32(t[4:8])
		p.Ack = be.Uint32(t[8:12])
		p.TCPFlags = t[13]
		p.Window = be.Uint16(t[14:16])
		p.Payload = p.L4 + uint16(hl)
	case ProtoUDP:
		if len(t) < 8 {
			return p.shortTransport()
		}
		if n := int(be.Uint16(t[4:6])); n < 8 || n > len(t) && !first {
			return p.stop(ReasonUDPLength)
		}
		p.Ports = be.Uint32(t[0:4])
		p.Payload = p.L4 + 8
	case ProtoICMP, ProtoICMPv6:
		if (p.Proto == ProtoICMP) != (p.Version == 4) {
			break
		}
		if len(t) < 8 {
			return p.shortTransport()
		}
		p.ICMPType, p.ICMPCode = t[0], t[1]
		p.Seq = be.Uint32(t[4:8])
		p.Payload = p.L4 + 8
	case ProtoSCTP:
		if len(t) < 12 {
			return p.shortTransport()
		}
		p.Ports = be.Uint32(t[0:4])
		p.Seq = be.Uint32(t[4:8])
		p.Payload = p.L4 + 12
	case ProtoUDPLite:
		if len(t) < 8 {
			return p.shortTransport()
		}
		if n := int(be.Uint16(t[4:6])); n != 0 && (n < 8 || n > len(t) && !first) {
			return p.stop(ReasonUDPLiteCover)
		}
		p.Ports = be.Uint32(t[0:4])
		p.Payload = p.L4 + 8
	}
	return ReasonNone
}

// shortTransport refuses a packet that ends inside its transport header.
func (p *Packet) shortTransport() Reason {
	if p.Frag&FragFirst != 0 {
		return p.stop(ReasonFragTiny)
	}
	return p.stop(ReasonTransport)
}
