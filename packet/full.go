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
// layer stay as they are, those of the transport layer have not been set.
func (p *Packet) stop(r Reason) Reason {
	p.Reason = r
	return r
}

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
	*p = Packet{}
	p.L4, p.rest = uint16(ihl), uint16(total-ihl)
	p.Version, p.TOS, p.TTL, p.Proto = 4, b[1], b[8], Proto(b[9])
	p.IPID, p.Frag = uint32(be.Uint16(b[4:6])), b[6]&(FragMF|FragDF|FragRF)
	put4(&p.SrcIP, b[12:16])
	put4(&p.DstIP, b[16:20])
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
	if isMapped(b[8:24]) || isMapped(b[24:40]) {
		return p.refuse(ReasonMapped)
	}
	*p = Packet{}
	p.L4, p.rest = 40, uint16(plen)
	p.Version, p.TOS, p.TTL, p.Proto = 6, b[0]<<4|b[1]>>4, b[7], Proto(b[6])
	p.SrcIP = [16]byte(b[8:24])
	p.DstIP = [16]byte(b[24:40])
	if p.extensions(b) {
		return p.Reason
	}
	return p.transport(b)
}

// transport reads the header at p.L4 and ends the decode. b ends with the packet.
func (p *Packet) transport(b []byte) Reason {
	t := b[p.L4:]
	first := p.Frag&FragFirst != 0
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
		p.aux, p.TCPFlags, p.offset = be.Uint16(t[14:16]), t[13], t[12]
	case ProtoUDP:
		if len(t) < 8 {
			return p.shortTransport()
		}
		if n := int(be.Uint16(t[4:6])); n < 8 || n > len(t) && !first {
			return p.stop(ReasonUDPLength)
		}
		p.Ports = be.Uint32(t[0:4])
		p.offset = 8 / 4 << 4
	case ProtoUDPLite:
		if len(t) < 8 {
			return p.shortTransport()
		}
		if n := int(be.Uint16(t[4:6])); n != 0 && (n < 8 || n > len(t) && !first) {
			return p.stop(ReasonUDPLiteCover)
		}
		p.Ports = be.Uint32(t[0:4])
		p.offset = 8 / 4 << 4
	case ProtoSCTP:
		if len(t) < 12 {
			return p.shortTransport()
		}
		p.Ports, p.Seq = be.Uint32(t[0:4]), be.Uint32(t[4:8])
		p.offset = 12 / 4 << 4
	case ProtoICMP, ProtoICMPv6:
		if (p.Proto == ProtoICMP) != (p.Version == 4) {
			break
		}
		if len(t) < 8 {
			return p.shortTransport()
		}
		p.aux = be.Uint16(t[0:2])
		p.Seq = be.Uint32(t[4:8])
		p.offset = 8 / 4 << 4
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

// put4 writes the IPv4 address a as Packet has it.
func put4(ip *[16]byte, a []byte) {
	le.PutUint64(ip[0:8], 0)
	le.PutUint64(ip[8:16], uint64(le.Uint32(a))<<32|mapped)
}

// isMapped reports whether an IPv6 address is an IPv4-mapped one.
func isMapped(a []byte) bool { return le.Uint64(a) == 0 && le.Uint32(a[8:]) == mapped }
