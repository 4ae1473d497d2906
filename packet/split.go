package packet

import "fmt"

// Split cuts an IP packet into fragments of at most mtu bytes each, as a router (IPv4) or
// the sender (IPv6) would. id is the identification of the IPv6 fragments; IPv4 has
// one of its own. IPv4 options with the copy bit and IPv6 hop-by-hop and routing headers are
// in every fragment. A packet that fits is returned as it is.
func Split(b []byte, mtu int, id uint32) ([][]byte, error) {
	var p Packet
	if r := p.Decode(b); r != ReasonNone {
		return nil, fmt.Errorf("split packet: %v", r)
	}
	if p.IsFragment() {
		return nil, fmt.Errorf("split packet: it is a fragment already")
	}
	b = b[:p.Len()]
	if len(b) <= mtu {
		return [][]byte{b}, nil
	}
	if p.Version == 4 {
		return split4(b, mtu)
	}
	return split6(b, mtu, id)
}

// split4 cuts an IPv4 packet.
func split4(b []byte, mtu int) ([][]byte, error) {
	ihl := int(b[0]&15) * 4
	data := b[ihl:]
	first, later := b[:ihl], copiedOptions(b[:ihl])
	var out [][]byte
	for off := 0; off < len(data); {
		head := later
		if off == 0 {
			head = first
		}
		n := (mtu - len(head)) &^ 7
		if n <= 0 {
			return nil, fmt.Errorf("split packet: mtu %d has no room for data", mtu)
		}
		n = min(n, len(data)-off)
		f := append(append(make([]byte, 0, len(head)+n), head...), data[off:off+n]...)
		word := be.Uint16(f[6:])&0xe000 | uint16(off/8)
		if off+n < len(data) {
			word |= 0x2000
		}
		be.PutUint16(f[2:], uint16(len(f)))
		be.PutUint16(f[6:], word)
		be.PutUint16(f[10:], 0)
		be.PutUint16(f[10:], ^fold(sum(0, f[:len(head)])))
		out = append(out, f)
		off += n
	}
	return out, nil
}

// copiedOptions returns header h with only those options that go into every
// fragment: the ones with the high bit set (RFC 791). h was decoded before.
func copiedOptions(h []byte) []byte {
	out := append([]byte(nil), h[:20]...)
	for o := h[20:]; len(o) > 0 && o[0] != 0; {
		n := 1
		if o[0] != 1 {
			n = int(o[1])
		}
		if o[0]&0x80 != 0 {
			out = append(out, o[:n]...)
		}
		o = o[n:]
	}
	out = append(out, make([]byte, -len(out)&3)...)
	out[0] = 0x40 | uint8(len(out)/4)
	return out
}

// split6 cuts an IPv6 packet after its hop-by-hop and routing headers; destination
// options stay in front only when a routing header follows (RFC 8200 section 4.1).
func split6(b []byte, mtu int, id uint32) ([][]byte, error) {
	at, nextAt := 40, 6 // end of the part in every fragment, place of its last next-header field
	for end := 40; ; {
		next := b[nextAt]
		if next == ProtoHopByHop || next == ProtoRouting || next == ProtoDestination &&
			b[end] == ProtoRouting {
			nextAt = end
			end += int(b[end+1])*8 + 8
			at = end
			continue
		}
		break
	}
	n := (mtu - at - 8) &^ 7
	if n <= 0 {
		return nil, fmt.Errorf("split packet: mtu %d has no room for data", mtu)
	}
	data := b[at:]
	var out [][]byte
	for off := 0; off < len(data); off += n {
		end := min(off+n, len(data))
		f := append(make([]byte, 0, at+8+end-off), b[:at]...)
		h := make([]byte, 8)
		h[0] = f[nextAt]
		f[nextAt] = ProtoFragment
		word := uint16(off)
		if end < len(data) {
			word |= 1
		}
		be.PutUint16(h[2:], word)
		be.PutUint32(h[4:], id)
		f = append(append(f, h...), data[off:end]...)
		be.PutUint16(f[4:], uint16(len(f)-40))
		out = append(out, f)
	}
	return out, nil
}
