package packet

// reference decodes as docs/design/0002-decoder.md says, one step after another and one byte at a
// time. It is slow and obviously right; Decode must agree with it.
func reference(b []byte) Packet {
	t := referenceDecoder{b: b}
	t.decode()
	t.end()
	return t.p
}

type referenceDecoder struct {
	b []byte
	p Packet
}

// end sets the fields that follow from others.
func (t *referenceDecoder) end() {
	if t.p.Version != 0 {
		t.p.rest = uint16(len(t.b) - int(t.p.L4))
	}
}

// u16 and u32 read big-endian numbers; an index beyond the packet is a panic, a test failure.
func (t *referenceDecoder) u16(i int) uint16 { return uint16(t.b[i])*256 + uint16(t.b[i+1]) }
func (t *referenceDecoder) u32(i int) uint32 { return uint32(t.u16(i))*65536 + uint32(t.u16(i+2)) }
func (t *referenceDecoder) u64(i int) uint64 { return uint64(t.u32(i))<<32 + uint64(t.u32(i+4)) }

func (t *referenceDecoder) refuse(r Reason) { t.p = Packet{Reason: r} }

func (t *referenceDecoder) stop(r Reason) {
	t.p.Ports, t.p.Seq, t.p.Ack, t.p.TCPFlags, t.p.offset = 0, 0, 0, 0, 0
	t.p.Reason = r
}

func (t *referenceDecoder) decode() {
	if len(t.b) < 20 {
		t.refuse(ReasonShort)
		return
	}
	switch t.b[0] / 16 {
	case 4:
		t.v4()
	case 6:
		t.v6()
	default:
		t.refuse(ReasonVersion)
	}
}

func (t *referenceDecoder) v4() {
	ihl := int(t.b[0]%16) * 4
	if ihl < 20 {
		t.refuse(ReasonIHL)
		return
	}
	total := int(t.u16(2))
	if total < ihl || total > len(t.b) {
		t.refuse(ReasonLength)
		return
	}
	t.b = t.b[:total:total]
	p := &t.p
	p.SrcIP, p.DstIP = [16]byte{10: 255, 11: 255}, [16]byte{10: 255, 11: 255}
	for i := range 4 {
		p.SrcIP[12+i], p.DstIP[12+i] = t.b[12+i], t.b[16+i]
	}
	p.IPID, p.L4 = uint32(t.u16(4)), uint16(ihl)
	p.Version, p.TOS, p.TTL, p.Proto = 4, t.b[1], t.b[8], Proto(t.b[9])
	if t.b[6]&0x80 != 0 {
		p.Frag |= FragRF
	}
	if t.b[6]&0x40 != 0 {
		p.Frag |= FragDF
	}
	more := t.b[6]&0x20 != 0
	if more {
		p.Frag |= FragMF
	}
	for i := 20; i < ihl && t.b[i] != 0; {
		if t.b[i] == 1 {
			i++
			continue
		}
		if i+1 >= ihl || t.b[i+1] < 2 || i+int(t.b[i+1]) > ihl {
			t.stop(ReasonIPOption)
			return
		}
		switch t.b[i] {
		case 137:
			p.IPOptions |= 1
		case 131:
			p.IPOptions |= 2
		case 7:
			p.IPOptions |= 4
		case 68:
			p.IPOptions |= 8
		case 148:
			p.IPOptions |= 16
		}
		i += int(t.b[i+1])
	}
	off := int(t.u16(6)%8192) * 8
	if off > 0 || more {
		if t.fragment(off, more, ihl) {
			return
		}
	}
	t.transport()
}

func (t *referenceDecoder) v6() {
	if len(t.b) < 40 {
		t.refuse(ReasonShort)
		return
	}
	if t.u16(4) == 0 && t.b[6] == 0 {
		t.refuse(ReasonJumbo)
		return
	}
	total := 40 + int(t.u16(4))
	if total > len(t.b) {
		t.refuse(ReasonLength)
		return
	}
	t.b = t.b[:total:total]
	for _, at := range []int{8, 24} {
		if t.u64(at) == 0 && t.u32(at+8) == 0xffff {
			t.refuse(ReasonMapped)
			return
		}
	}
	p := &t.p
	for i := range 16 {
		p.SrcIP[i], p.DstIP[i] = t.b[8+i], t.b[24+i]
	}
	p.L4 = 40
	p.Version, p.Proto, p.TTL, p.TOS = 6, Proto(t.b[6]), t.b[7], uint8(t.u16(0)/16%256)
	for i := 0; ; i++ {
		switch p.Proto {
		case 0, 43, 44, 51, 60:
		default:
			t.transport()
			return
		}
		if i == 8 {
			t.stop(ReasonExtCount)
			return
		}
		if p.Proto == 0 && i != 0 || p.Proto == 44 && p.ExtHdrs&8 != 0 {
			t.stop(ReasonExtOrder)
			return
		}
		at := int(p.L4)
		short := ReasonExtShort
		if p.Frag&FragFirst != 0 {
			short = ReasonFragTiny
		}
		if total-at < 8 {
			t.stop(short)
			return
		}
		size := 8 * (int(t.b[at+1]) + 1)
		if p.Proto == 44 {
			size = 8
		}
		if p.Proto == 51 {
			size = 4 * (int(t.b[at+1]) + 2)
			if size < 12 {
				t.stop(short)
				return
			}
		}
		if at+size > total {
			t.stop(short)
			return
		}
		switch p.Proto {
		case 0:
			p.ExtHdrs |= 1
			if r := t.hopOptions(at+2, at+size); r != ReasonNone {
				t.stop(r)
				return
			}
		case 43:
			p.ExtHdrs |= 2
			if t.b[at+2] == 0 {
				p.ExtHdrs |= 32
			}
		case 60:
			p.ExtHdrs |= 4
		case 51:
			p.ExtHdrs |= 16
		case 44:
			p.ExtHdrs |= 8
			p.IPID = t.u32(at + 4)
		}
		fragment := p.Proto == 44
		p.Proto = Proto(t.b[at])
		p.L4 += uint16(size)
		if fragment {
			off, more := int(t.u16(at+2)/8)*8, t.b[at+3]%2 == 1
			if (off > 0 || more) && t.fragment(off, more, at-40) {
				return
			}
		}
	}
}

func (t *referenceDecoder) hopOptions(i, end int) Reason {
	for n := 0; i < end; n++ {
		if n == 16 {
			return ReasonExtOption
		}
		if t.b[i] == 0 {
			i++
			continue
		}
		if i+1 >= end || i+2+int(t.b[i+1]) > end {
			return ReasonExtOption
		}
		if t.b[i] == 0xc2 {
			return ReasonJumbo
		}
		if t.b[i] == 5 {
			t.p.IPOptions |= 16
		}
		i += 2 + int(t.b[i+1])
	}
	return ReasonNone
}

// fragment reports whether the decode ends.
func (t *referenceDecoder) fragment(off int, more bool, front int) bool {
	p := &t.p
	data := len(t.b) - int(p.L4)
	if more {
		p.Frag |= FragMF
	}
	if off == 0 {
		p.Frag |= FragFirst
	} else {
		p.Frag |= FragLater
		p.aux = uint16(off)
	}
	if data == 0 || more && data%8 != 0 {
		t.stop(ReasonFragLength)
		return true
	}
	if front+off+data > 65535 {
		t.stop(ReasonFragEnd)
		return true
	}
	if off == 0 {
		return false
	}
	if p.Proto == 6 && off < 20 {
		t.stop(ReasonFragOverlap)
		return true
	}
	t.stop(ReasonNone)
	return true
}

func (t *referenceDecoder) transport() {
	p := &t.p
	t.stop(ReasonNone)
	at := int(p.L4)
	n := len(t.b) - at
	first := p.Frag&FragFirst != 0
	need := map[uint8]int{6: 20, 17: 8, 136: 8, 132: 12}[uint8(p.Proto)]
	if p.Version == 4 && p.Proto == 1 || p.Version == 6 && p.Proto == 58 {
		need = 8
	}
	if n < need {
		if first {
			t.stop(ReasonFragTiny)
		} else {
			t.stop(ReasonTransport)
		}
		return
	}
	if need == 0 {
		return
	}
	switch p.Proto {
	case 6:
		hl := int(t.b[at+12]/16) * 4
		switch {
		case hl < 20:
			t.stop(ReasonTCPOffset)
			return
		case hl > n && first:
			t.stop(ReasonFragTiny)
			return
		case hl > n:
			t.stop(ReasonTCPOffset)
			return
		}
		p.Seq, p.Ack = t.u32(at+4), t.u32(at+8)
		p.offset, p.TCPFlags, p.aux = t.b[at+12], t.b[at+13], t.u16(at+14)
	case 17:
		if l := int(t.u16(at + 4)); l < 8 || l > n && !first {
			t.stop(ReasonUDPLength)
			return
		}
	case 136:
		if l := int(t.u16(at + 4)); l != 0 && l < 8 || l > n && !first {
			t.stop(ReasonUDPLiteCover)
			return
		}
	case 132:
		p.Seq = t.u32(at + 4)
	default:
		p.aux, p.Seq = uint16(t.b[at])*256+uint16(t.b[at+1]), t.u32(at+4)
	}
	if p.Proto != 1 && p.Proto != 58 {
		p.Ports = t.u32(at)
	}
	if p.Proto != 6 {
		p.offset = uint8(need / 4 * 16)
	}
}
