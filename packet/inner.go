package packet

// Inner decodes the packet that the ICMP or ICMPv6 error p quotes. b are the
// bytes that p was decoded from. ok is false when p is no error, or when
// the quote does not tell a conversation: another family, a header that is cut or
// malformed, a later fragment, or fewer than 8 bytes of a transport header.
//
// Only the fields that identify the conversation are set: addresses, Version,
// Proto, TTL, TOS, Len, IPID, Frag, ExtHdrs, L4 and Payload (both offsets count
// from the start of the quoted header), and of the first 8 bytes of the transport
// header Ports and Seq, or ICMPType, ICMPCode and Seq. Lengths inside the quote
// are not checked, since routers change them.
func (p *Packet) Inner(b []byte) (inner Packet, ok bool) {
	if !p.ICMPError() || int(p.Len) > len(b) {
		return Packet{}, false
	}
	q := b[p.Payload:p.Len]
	if len(q) == 0 || q[0]>>4 != p.Version {
		return Packet{}, false
	}
	if p.Version == 4 {
		ok = inner.quote4(q)
	} else {
		ok = inner.quote6(q)
	}
	if !ok || !inner.quoteTransport(q) {
		return Packet{}, false
	}
	return inner, true
}

// quote4 reads a quoted IPv4 header. Options are stepped over.
func (p *Packet) quote4(q []byte) bool {
	if len(q) < 20 {
		return false
	}
	ihl := int(q[0]&15) * 4
	if ihl < 20 || ihl > len(q) {
		return false
	}
	p.SrcLo = mapped | uint64(be.Uint32(q[12:16]))
	p.DstLo = mapped | uint64(be.Uint32(q[16:20]))
	p.Version, p.TOS, p.TTL, p.Proto = 4, q[1], q[8], q[9]
	p.Len = uint32(be.Uint16(q[2:4]))
	p.IPID = uint32(be.Uint16(q[4:6]))
	p.L4 = uint16(ihl)
	frag := be.Uint16(q[6:8])
	p.Frag = uint8(frag>>8) & (FragMF | FragDF | FragRF)
	if frag&0x1fff != 0 {
		return false
	}
	if p.Frag&FragMF != 0 {
		p.Frag |= FragFirst
	}
	return true
}

// quote6 reads a quoted IPv6 header and steps over its extension headers. Hop-by-hop
// options are not looked at.
func (p *Packet) quote6(q []byte) bool {
	if len(q) < 40 {
		return false
	}
	p.SrcHi, p.SrcLo = be.Uint64(q[8:16]), be.Uint64(q[16:24])
	p.DstHi, p.DstLo = be.Uint64(q[24:32]), be.Uint64(q[32:40])
	if isMapped(p.SrcHi, p.SrcLo) || isMapped(p.DstHi, p.DstLo) {
		return false
	}
	p.Version, p.TOS, p.TTL, p.Proto = 6, q[0]<<4|q[1]>>4, q[7], q[6]
	p.Len = 40 + uint32(be.Uint16(q[4:6]))
	p.L4 = 40
	for range maxExtHdrs {
		if !isExtension(p.Proto) {
			return true
		}
		h := q[p.L4:]
		size := extensionSize(p.Proto, h)
		if size == 0 {
			return false
		}
		switch p.Proto {
		case ProtoHopByHop:
			p.ExtHdrs |= ExtHopByHop
		case ProtoRouting:
			p.ExtHdrs |= ExtRouting
			if h[2] == 0 {
				p.ExtHdrs |= ExtRouting0
			}
		case ProtoDestination:
			p.ExtHdrs |= ExtDestination
		case ProtoAH:
			p.ExtHdrs |= ExtAH
		case ProtoFragment:
			p.ExtHdrs |= ExtFragment
			p.IPID = be.Uint32(h[4:8])
			word := be.Uint16(h[2:4])
			if word&0xfff8 != 0 {
				return false
			}
			if word&1 != 0 {
				p.Frag |= FragMF | FragFirst
			}
		}
		p.Proto = h[0]
		p.L4 += uint16(size)
	}
	return !isExtension(p.Proto)
}

// quoteTransport reads the first 8 bytes of the quoted transport header.
func (p *Packet) quoteTransport(q []byte) bool {
	t := q[p.L4:]
	p.Payload = p.L4
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoUDPLite:
		if len(t) < 8 {
			return false
		}
		p.Ports = be.Uint32(t[0:4])
		if p.Proto == ProtoTCP || p.Proto == ProtoSCTP {
			p.Seq = be.Uint32(t[4:8])
		}
		p.Payload += 8
	case ProtoICMP, ProtoICMPv6:
		if (p.Proto == ProtoICMP) != (p.Version == 4) {
			break
		}
		if len(t) < 8 {
			return false
		}
		p.ICMPType, p.ICMPCode = t[0], t[1]
		p.Seq = be.Uint32(t[4:8])
		p.Payload += 8
	}
	return true
}
