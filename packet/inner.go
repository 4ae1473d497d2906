package packet

// Inner decodes the packet that the ICMP or ICMPv6 error p quotes. b holds the bytes that p was
// decoded from. ok is false when p is not an error, or when the quote does not identify a flow.
// Such a quote has another family, a truncated or malformed header, is a later fragment, or has
// fewer than 8 bytes of a transport header.
//
// Only the fields that identify the flow are set. From the IP headers these are addresses, Version,
// Proto, TTL, TOS, IPID, Frag, ExtHdrs, Len, and L4, which counts from the start of the quoted
// header. From the first 8 bytes of the transport header they are Ports and Seq, or ICMPType,
// ICMPCode and Seq. PayloadOffset is L4 plus these 8 bytes. Lengths inside the quote are not
// checked, since routers change them: Len is what the quoted header says, but at least L4.
func (p *Packet) Inner(b []byte) (inner Packet, ok bool) {
	if !p.ICMPError() || int(p.Len()) > len(b) {
		return Packet{}, false
	}
	q := b[p.PayloadOffset():p.Len()]
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

// quote4 reads a quoted IPv4 header and skips its options.
func (p *Packet) quote4(q []byte) bool {
	if len(q) < 20 {
		return false
	}
	ihl := int(q[0]&15) * 4
	if ihl < 20 || ihl > len(q) {
		return false
	}
	put4(&p.SrcIP, q[12:16])
	put4(&p.DstIP, q[16:20])
	p.Version, p.TOS, p.TTL, p.Proto = 4, q[1], q[8], Proto(q[9])
	p.rest = uint16(max(int(be.Uint16(q[2:4]))-ihl, 0))
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

// quote6 reads a quoted IPv6 header and skips its extension headers. It does not read
// hop-by-hop options.
func (p *Packet) quote6(q []byte) bool {
	if len(q) < 40 {
		return false
	}
	if isMapped(q[8:24]) || isMapped(q[24:40]) {
		return false
	}
	p.SrcIP, p.DstIP = [16]byte(q[8:24]), [16]byte(q[24:40])
	p.Version, p.TOS, p.TTL, p.Proto = 6, q[0]<<4|q[1]>>4, q[7], Proto(q[6])
	p.L4 = 40
	for range maxExtHdrs {
		if !isExtension(p.Proto) {
			break
		}
		h := q[p.L4:]
		size := extensionSize(p.Proto, h)
		if size == 0 {
			return false
		}
		if p.Proto == ProtoFragment {
			word := be.Uint16(h[2:4])
			if word&^7 != 0 {
				return false
			}
			if word&1 != 0 {
				p.Frag |= FragMF | FragFirst
			}
		}
		p.step(h, size)
	}
	p.rest = uint16(max(40+int(be.Uint16(q[4:6]))-int(p.L4), 0))
	return !isExtension(p.Proto)
}

// quoteTransport reads the first 8 bytes of the quoted transport header.
func (p *Packet) quoteTransport(q []byte) bool {
	t := q[p.L4:]
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP, ProtoUDPLite:
		if len(t) < 8 {
			return false
		}
		p.Ports = be.Uint32(t[0:4])
		if p.Proto == ProtoTCP || p.Proto == ProtoSCTP {
			p.Seq = be.Uint32(t[4:8])
		}
		p.offset = 8 / 4 << 4
	case ProtoICMP, ProtoICMPv6:
		if (p.Proto == ProtoICMP) != (p.Version == 4) {
			break
		}
		if len(t) < 8 {
			return false
		}
		p.aux = be.Uint16(t[0:2])
		p.Seq = be.Uint32(t[4:8])
		p.offset = 8 / 4 << 4
	}
	return true
}
