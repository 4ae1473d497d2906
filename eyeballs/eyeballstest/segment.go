package eyeballstest

import (
	"encoding/binary"
	"net/netip"
)

// segment is a TCP segment in its IP packet.
type segment struct {
	b  []byte // the whole packet
	at int    // where TCP begins
}

func parseSegment(b []byte) (segment, bool) {
	if len(b) < 20 {
		return segment{}, false
	}
	at := 40
	proto := b[6]
	if b[0]>>4 == 4 {
		at, proto = int(b[0]&15)*4, b[9]
	}
	if proto != 6 || len(b) < at+20 {
		return segment{}, false
	}
	return segment{b, at}, true
}

func (p segment) v4() bool { return p.b[0]>>4 == 4 }

// addrs returns the bytes of the source and the destination address.
func (p segment) addrs() (src, dst []byte) {
	if p.v4() {
		return p.b[12:16], p.b[16:20]
	}
	return p.b[8:24], p.b[24:40]
}

func (p segment) src() netip.AddrPort {
	raw, _ := p.addrs()
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(p.b[p.at:]))
}

func (p segment) dst() netip.AddrPort {
	_, raw := p.addrs()
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(p.b[p.at+2:]))
}

const (
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

func (p segment) flags() byte { return p.b[p.at+13] }

func (p segment) syn() bool { return p.flags()&(flagSYN|flagACK) == flagSYN }

func (p segment) payload() int { return len(p.b) - p.at - int(p.b[p.at+12]>>4)*4 }

// rewrite changes both ends and updates the checksums.
func (p segment) rewrite(src, dst netip.AddrPort) {
	s, d := p.addrs()
	copy(s, src.Addr().AsSlice())
	copy(d, dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(p.b[p.at:], src.Port())
	binary.BigEndian.PutUint16(p.b[p.at+2:], dst.Port())
	p.checksums(6, 16)
}

// checksums sets the checksums of the IPv4 header and of the protocol. The latter is at the offset.
func (p segment) checksums(proto byte, offset int) {
	if p.v4() {
		binary.BigEndian.PutUint16(p.b[10:], 0)
		binary.BigEndian.PutUint16(p.b[10:], ^fold(sum(0, p.b[:p.at])))
	}
	body := p.b[p.at:]
	binary.BigEndian.PutUint16(body[offset:], 0)
	total := uint32(0)
	if !p.v4() || proto == 6 { // ICMP for IPv4 has no pseudo-header
		s, d := p.addrs()
		total = sum(sum(uint32(len(body))+uint32(proto), s), d)
	}
	binary.BigEndian.PutUint16(body[offset:], ^fold(sum(total, body)))
}

func sum(total uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		total += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	return total
}

func fold(total uint32) uint16 {
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// answer makes a packet back to the sender with size bytes after the IP header.
func (p segment) answer(proto byte, size int) segment {
	s, d := p.addrs()
	if p.v4() {
		b := make([]byte, 20+size)
		b[0], b[8], b[9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		copy(b[12:], d)
		copy(b[16:], s)
		return segment{b, 20}
	}
	b := make([]byte, 40+size)
	b[0], b[6], b[7] = 0x60, proto, 64
	binary.BigEndian.PutUint16(b[4:], uint16(size))
	copy(b[8:], d)
	copy(b[24:], s)
	return segment{b, 40}
}

// refusal returns the RST that answers a SYN.
func (p segment) refusal() []byte {
	r := p.answer(6, 20)
	t := r.b[r.at:]
	copy(t[0:2], p.b[p.at+2:])
	copy(t[2:4], p.b[p.at:])
	binary.BigEndian.PutUint32(t[8:], binary.BigEndian.Uint32(p.b[p.at+4:])+1)
	t[12], t[13] = 5<<4, flagRST|flagACK
	r.checksums(6, 16)
	return r.b
}

// unreachable returns the ICMP error of a router.
func (p segment) unreachable() []byte {
	quote := p.b[:min(len(p.b), p.at+8)]
	if p.v4() {
		r := p.answer(1, 8+len(quote))
		r.b[r.at], r.b[r.at+1] = 3, 1 // host unreachable
		copy(r.b[r.at+8:], quote)
		r.checksums(1, 2)
		return r.b
	}
	r := p.answer(58, 8+len(quote))
	r.b[r.at], r.b[r.at+1] = 1, 3 // address unreachable
	copy(r.b[r.at+8:], quote)
	r.checksums(58, 2)
	return r.b
}
