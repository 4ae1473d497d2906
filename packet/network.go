package packet

// Limits of the walk through options and extension headers. They are part of
// the contract with the kernel engine.
const (
	maxExtHdrs    = 8  // IPv6 extension headers, the fragment header included
	maxHopOptions = 16 // options in a hop-by-hop header, each padding byte Pad1 included
)

// options4 records the IPv4 options in o, which has at most 40 bytes.
func (p *Packet) options4(o []byte) Reason {
	for len(o) > 0 {
		if o[0] == 0 { // end of list
			return ReasonNone
		}
		if o[0] == 1 { // no operation
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return ReasonIPOption
		}
		switch o[0] {
		case 137:
			p.IPOptions |= OptSSRR
		case 131:
			p.IPOptions |= OptLSRR
		case 7:
			p.IPOptions |= OptRR
		case 68:
			p.IPOptions |= OptTS
		case 148:
			p.IPOptions |= OptRouterAlert
		}
		o = o[o[1]:]
	}
	return ReasonNone
}

// fragment sets the fragment state and checks the place of the fragment. off is its offset in
// bytes, and data the number of bytes after the headers. front is the other bytes that count
// towards 65535: the IPv4 header, or the IPv6 extension headers before the fragment header. p.Proto
// and p.L4 are set.
func (p *Packet) fragment(off uint16, more bool, data, front int) (done bool) {
	if more {
		p.Frag |= FragMF
	}
	if off == 0 {
		p.Frag |= FragFirst
	} else {
		p.Frag |= FragLater
		p.aux = off
	}
	switch {
	case data == 0, more && data%8 != 0:
		p.stop(ReasonFragLength)
	case front+int(off)+data > 65535:
		p.stop(ReasonFragEnd)
	case off == 0:
		return false
	case off < 20 && p.Proto == ProtoTCP:
		p.stop(ReasonFragOverlap)
	default:
		p.stop(ReasonNone)
	}
	return true
}

// isExtension reports whether an IPv6 next header value is an extension
// header that the decoder walks. ESP and No Next Header end the chain.
func isExtension(proto Proto) bool {
	const set = 1<<ProtoHopByHop | 1<<ProtoRouting | 1<<ProtoDestination |
		1<<ProtoFragment | 1<<ProtoAH
	return proto < 64 && uint64(set)>>proto&1 != 0
}

// extensions walks the IPv6 extension headers from p.L4 on, moving p.L4 and
// p.Proto along. It reports whether the decode ends here: a malformed
// chain, or a later fragment. b ends with the packet.
func (p *Packet) extensions(b []byte) (done bool) {
	for i := 0; isExtension(p.Proto); i++ {
		if i == maxExtHdrs {
			p.stop(ReasonExtCount)
			return true
		}
		if p.Proto == ProtoHopByHop && i > 0 || p.Proto == ProtoFragment &&
			p.ExtHdrs&ExtFragment != 0 {
			p.stop(ReasonExtOrder)
			return true
		}
		h := b[p.L4:]
		size := extensionSize(p.Proto, h)
		if size == 0 {
			p.shortExtension()
			return true
		}
		at := p.L4
		fragment := p.Proto == ProtoFragment
		if p.Proto == ProtoHopByHop {
			p.ExtHdrs |= ExtHopByHop
			if r := p.hopOptions(h[2:size]); r != ReasonNone {
				p.stop(r)
				return true
			}
		}
		p.step(h, size)
		if word := be.Uint16(h[2:4]); fragment && word&^6 != 0 &&
			p.fragment(word&^7, word&1 != 0, len(h)-8, int(at)-40) {
			return true
		}
	}
	return false
}

// step records the extension header of type p.Proto, which is the first size bytes of h, and moves
// p.L4 and p.Proto past it.
func (p *Packet) step(h []byte, size int) {
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
	}
	p.Proto = Proto(h[0])
	p.L4 += uint16(size)
	p.rest -= uint16(size)
}

// extensionSize returns the length in bytes of the extension header that h
// starts with, or 0 when h ends inside it.
func extensionSize(proto Proto, h []byte) int {
	if len(h) < 8 {
		return 0
	}
	size := 8
	switch proto {
	case ProtoFragment:
	case ProtoAH:
		size = int(h[1])*4 + 8
		if size < 12 {
			return 0
		}
	default:
		size = int(h[1])*8 + 8
	}
	if size > len(h) {
		return 0
	}
	return size
}

// shortExtension refuses a chain that ends inside an extension header. A first
// fragment must hold the whole chain (RFC 7112).
func (p *Packet) shortExtension() {
	if p.Frag&FragFirst != 0 {
		p.stop(ReasonFragTiny)
		return
	}
	p.stop(ReasonExtShort)
}

// hopOptions records the hop-by-hop options in o.
func (p *Packet) hopOptions(o []byte) Reason {
	for range maxHopOptions {
		if len(o) == 0 {
			return ReasonNone
		}
		if o[0] == 0 { // Pad1
			o = o[1:]
			continue
		}
		if len(o) < 2 || int(o[1])+2 > len(o) {
			return ReasonExtOption
		}
		switch o[0] {
		case 5:
			p.IPOptions |= OptRouterAlert
		case 0xc2:
			return ReasonJumbo
		}
		o = o[2+int(o[1]):]
	}
	if len(o) > 0 {
		return ReasonExtOption
	}
	return ReasonNone
}
