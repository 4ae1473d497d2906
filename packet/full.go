package packet

// full decodes any packet of at least 20 bytes. It follows the steps of
// docs/design/0002-decoder.md one by one.
func (p *Packet) full(b []byte) Reason {
	switch b[0] >> 4 {
	case 4:
		return p.full4(b)
	case 6:
		return p.full6(b)
	}
	return p.refuse(ReasonVersion)
}

// refuse empties p: the IP header itself is malformed.
func (p *Packet) refuse(r Reason) Reason {
	*p = Packet{Reason: r}
	return r
}

// stop ends a decode after the IP header was read: the fields of the network
// layer stay as they are, those of the transport layer are zero.
func (p *Packet) stop(r Reason) Reason {
	p.Ports, p.Seq, p.Ack = 0, 0, 0
	p.Window, p.TCPFlags, p.TCPOffset = 0, 0, 0
	p.ICMPType, p.ICMPCode = 0, 0
	p.Payload = p.L4
	p.Reason = r
	return r
}

// full4 reads an IPv4 packet.
func (p *Packet) full4(b []byte) Reason {
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
	p.IPID, p.Len = uint32(be.Uint16(b[4:6])), uint32(total)
	p.Version, p.IPOptions, p.ExtHdrs, p.Reason = 4, 0, 0, ReasonNone
	p.TTL, p.Proto, p.TOS, p.Frag = b[8], b[9], b[1], b[6]&(FragMF|FragDF|FragRF)
	p.FragOff, p.L4 = 0, uint16(ihl)
	if r := p.options4(b[20:ihl]); r != ReasonNone {
		return p.stop(r)
	}
	word := be.Uint16(b[6:8])
	off, more := word&0x1fff<<3, word&0x2000 != 0
	if (off != 0 || more) && p.fragment(off, more, len(b)-ihl, ihl) {
		return p.Reason
	}
	return p.transport(b)
}

// full6 reads an IPv6 packet.
func (p *Packet) full6(b []byte) Reason {
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
	p.SrcHi, p.SrcLo = be.Uint64(b[8:16]), be.Uint64(b[16:24])
	p.DstHi, p.DstLo = be.Uint64(b[24:32]), be.Uint64(b[32:40])
	p.IPID, p.Len = 0, uint32(total)
	p.Version, p.IPOptions, p.ExtHdrs, p.Reason = 6, 0, 0, ReasonNone
	p.TTL, p.Proto, p.TOS, p.Frag = b[7], b[6], b[0]<<4|b[1]>>4, 0
	if p.refuseMapped() != ReasonNone {
		return ReasonMapped
	}
	p.FragOff, p.L4 = 0, 40
	if p.extensions(b) {
		return p.Reason
	}
	return p.transport(b)
}

// transport reads the header at p.L4 and ends the decode. b ends with the packet.
func (p *Packet) transport(b []byte) Reason {
	t := b[p.L4:]
	first := p.Frag&FragFirst != 0
	p.stop(ReasonNone)
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
		p.Ports, p.Seq, p.Ack = be.Uint32(t[0:4]), be.Uint32(t[4:8]), be.Uint32(t[8:12])
		p.Window, p.TCPFlags, p.TCPOffset = be.Uint16(t[14:16]), t[13], t[12]
		p.Payload += uint16(hl)
	case ProtoUDP:
		if len(t) < 8 {
			return p.shortTransport()
		}
		if n := int(be.Uint16(t[4:6])); n < 8 || n > len(t) && !first {
			return p.stop(ReasonUDPLength)
		}
		p.Ports = be.Uint32(t[0:4])
		p.Payload += 8
	case ProtoUDPLite:
		if len(t) < 8 {
			return p.shortTransport()
		}
		if n := int(be.Uint16(t[4:6])); n != 0 && (n < 8 || n > len(t) && !first) {
			return p.stop(ReasonUDPLiteCover)
		}
		p.Ports = be.Uint32(t[0:4])
		p.Payload += 8
	case ProtoSCTP:
		if len(t) < 12 {
			return p.shortTransport()
		}
		p.Ports, p.Seq = be.Uint32(t[0:4]), be.Uint32(t[4:8])
		p.Payload += 12
	case ProtoICMP, ProtoICMPv6:
		if (p.Proto == ProtoICMP) != (p.Version == 4) {
			break
		}
		if len(t) < 8 {
			return p.shortTransport()
		}
		p.ICMPType, p.ICMPCode = t[0], t[1]
		p.Seq = be.Uint32(t[4:8])
		p.Payload += 8
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

// refuseMapped ends the decode of an IPv6 packet with an IPv4-mapped address.
//
//go:noinline
func (p *Packet) refuseMapped() Reason {
	if isMapped(p.SrcHi, p.SrcLo) || isMapped(p.DstHi, p.DstLo) {
		return p.refuse(ReasonMapped)
	}
	return ReasonNone
}

// isMapped reports whether the words are an IPv4-mapped address.
func isMapped(hi, lo uint64) bool { return hi == 0 && lo>>32 == 0xffff }
