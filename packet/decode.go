package packet

import (
	"encoding/binary"
	"math/bits"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// Decode reads the IP packet in b, which starts with the IP header, and sets
// every field of p. It returns p.Reason. Bytes of b beyond the length in the
// IP header are ignored; p keeps no reference to b. It does not allocate and
// does not verify checksums (a checksum may be left to the card).
//
// The order of the checks, which is the same in the kernel engine, is in
// docs/design/0002-decoder.md.
//
//go:nosplit
func (p *Packet) Decode(b []byte) Reason {
	// This is the short cut for whole packets of TCP, UDP, ICMP and IGMP without other
	// options or extension headers. Whatever is not so plain, or is wrong, is left to
	// full, which reads everything again: full is the one to consult for the meaning, and
	// tests hold the two together.
	//
	// What a short cut costs is the number of its instructions, so there are no calls in
	// it, all offsets are constants, and fields that are neighbours are cut
	// from one word, because the compiler then joins their stores. It also joins the
	// loads that are written out byte by byte; the functions of encoding/binary would
	// leave a no-op each. No constant may show up in such a word as a whole field, or
	// the compiler stores that field apart: hence the sums and the rotation.
	if len(b) < 20 {
		*p = Packet{Reason: ReasonShort}
		return ReasonShort
	}
	switch {
	case b[0] >= 0x60 && b[0] < 0x70:
		x := uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7]) // payload length 16, next header 8, hop limit 8
		total := 40 + int(x>>16)
		if total > len(b) {
			break
		}
		p.Len = uint32(total)
		if total < 48 {
			break
		}
		p.SrcHi = be.Uint64(b[8:16])
		p.DstHi = be.Uint64(b[24:32])
		p.SrcLo = be.Uint64(b[16:24])
		p.DstLo = be.Uint64(b[32:40])
		m := be.Uint32(b[0:4])>>20<<8 - 6<<16 + 6
		p.Version, p.TOS, p.ExtHdrs, p.Reason = uint8(m), uint8(m>>8), uint8(m>>16), Reason(m>>24)
		q := bits.RotateLeft64(uint64(uint16(x)), 48)
		p.IPID, p.Frag, p.IPOptions, p.TTL, p.Proto = uint32(q), uint8(q>>32), uint8(q>>40), uint8(q>>48), uint8(q>>56)
		if b[6] == ProtoTCP {
			if total < 60 {
				break
			}
			u := uint64(b[40])<<56 | uint64(b[41])<<48 | uint64(b[42])<<40 | uint64(b[43])<<32 |
				uint64(b[44])<<24 | uint64(b[45])<<16 | uint64(b[46])<<8 | uint64(b[47])
			v := uint64(b[48])<<56 | uint64(b[49])<<48 | uint64(b[50])<<40 | uint64(b[51])<<32 |
				uint64(b[52])<<24 | uint64(b[53])<<16 | uint64(b[54])<<8 | uint64(b[55])
			w := bits.RotateLeft32(uint32(v)&(15<<28), 6) + (40<<16 | 40) // ack 32, data offset 4, reserved 4, flags 8, window 16
			if w < 40<<16|60 || w > 40<<16+uint32(total) {
				break
			}
			p.Payload, p.L4 = uint16(w), uint16(w>>16)
			p.Seq, p.Ports = uint32(u), uint32(u>>32)
			p.Window, p.TCPFlags, p.TCPOffset, p.Ack = uint16(v), uint8(v>>16), uint8(v>>24), uint32(v>>32)
			p.ICMPCode, p.ICMPType, p.FragOff = 0, 0, 0
			if p.SrcHi&p.DstHi == 0 {
				return p.refuseMapped()
			}
			return ReasonNone
		}
		if b[6] == ProtoUDP {
			if n := int(be.Uint16(b[44:46])); n < 8 || 40+n > total {
				break
			}
			p.Seq, p.Ports = 0, be.Uint32(b[40:44])
			p.Window, p.TCPFlags, p.TCPOffset, p.Ack = 0, 0, 0, 0
			p.Payload, p.L4, p.ICMPCode, p.ICMPType, p.FragOff = 48, 40, 0, 0, 0
			if p.SrcHi&p.DstHi == 0 {
				return p.refuseMapped()
			}
			return ReasonNone
		}
		if b[6] == ProtoICMPv6 {
			p.Seq, p.Ports = be.Uint32(b[44:48]), 0
			p.Window, p.TCPFlags, p.TCPOffset, p.Ack = 0, 0, 0, 0
			w := be.Uint16(b[40:42])
			p.ICMPCode, p.ICMPType = uint8(w), uint8(w>>8)
			p.Payload, p.L4 = 48, 40
			p.FragOff = 0
			if p.SrcHi&p.DstHi == 0 {
				return p.refuseMapped()
			}
			return ReasonNone
		}
	case b[0] == 0x45:
		x := uint32(b[2])<<24 | uint32(b[3])<<16 | uint32(b[4])<<8 | uint32(b[5]) // length 16, id 16
		y := uint32(b[6]) | uint32(b[7])<<8 | uint32(b[8])<<16 | uint32(b[9])<<24 // protocol, TTL, rest of offset, flags and offset
		total := int(x >> 16)
		if total > len(b) || y&0xff3f != 0 {
			break
		}
		z := uint64(b[12])<<56 | uint64(b[13])<<48 | uint64(b[14])<<40 | uint64(b[15])<<32 |
			uint64(b[16])<<24 | uint64(b[17])<<16 | uint64(b[18])<<8 | uint64(b[19])
		p.SrcHi, p.DstHi = 0, 0
		p.SrcLo, p.DstLo = z>>32|mapped, uint64(uint32(z))|mapped
		m := uint32(le.Uint16(b[0:2])) - 0x45 + 4
		p.Version, p.TOS, p.ExtHdrs, p.Reason = uint8(m), uint8(m>>8), uint8(m>>16), Reason(m>>24)
		p.Len = uint32(total)
		q := uint64(y)<<32 | uint64(uint16(x))
		p.IPID, p.Frag, p.IPOptions, p.TTL, p.Proto = uint32(q), uint8(q>>32), uint8(q>>40), uint8(q>>48), uint8(q>>56)
		if b[9] == ProtoTCP {
			if total < 40 {
				break
			}
			u := uint64(b[20])<<56 | uint64(b[21])<<48 | uint64(b[22])<<40 | uint64(b[23])<<32 |
				uint64(b[24])<<24 | uint64(b[25])<<16 | uint64(b[26])<<8 | uint64(b[27])
			v := uint64(b[28])<<56 | uint64(b[29])<<48 | uint64(b[30])<<40 | uint64(b[31])<<32 |
				uint64(b[32])<<24 | uint64(b[33])<<16 | uint64(b[34])<<8 | uint64(b[35])
			w := bits.RotateLeft32(uint32(v)&(15<<28), 6) + (20<<16 | 20) // ack 32, data offset 4, reserved 4, flags 8, window 16
			if w < 20<<16|40 || w > 20<<16+uint32(total) {
				break
			}
			p.Payload, p.L4 = uint16(w), uint16(w>>16)
			p.Seq, p.Ports = uint32(u), uint32(u>>32)
			p.Window, p.TCPFlags, p.TCPOffset, p.Ack = uint16(v), uint8(v>>16), uint8(v>>24), uint32(v>>32)
			p.ICMPCode, p.ICMPType, p.FragOff = 0, 0, 0
			return ReasonNone
		}
		if total < 28 {
			break
		}
		if b[9] == ProtoUDP {
			if n := int(be.Uint16(b[24:26])); n < 8 || 20+n > total {
				break
			}
			p.Seq, p.Ports = 0, be.Uint32(b[20:24])
			p.Window, p.TCPFlags, p.TCPOffset, p.Ack = 0, 0, 0, 0
			p.Payload, p.L4, p.ICMPCode, p.ICMPType, p.FragOff = 28, 20, 0, 0, 0
			return ReasonNone
		}
		if b[9] == ProtoICMP {
			p.Seq, p.Ports = be.Uint32(b[24:28]), 0
			p.Window, p.TCPFlags, p.TCPOffset, p.Ack = 0, 0, 0, 0
			w := be.Uint16(b[20:22])
			p.ICMPCode, p.ICMPType = uint8(w), uint8(w>>8)
			p.Payload, p.L4 = 28, 20
			p.FragOff = 0
			return ReasonNone
		}
	case b[0] == 0x46: // IGMP, which always has the router alert and no other option
		x := uint32(b[2])<<24 | uint32(b[3])<<16 | uint32(b[4])<<8 | uint32(b[5])
		y := uint32(b[6]) | uint32(b[7])<<8 | uint32(b[8])<<16 | uint32(b[9])<<24
		total := int(x >> 16)
		if total > len(b) || total < 24 || y&0xff00ff3f != uint32(ProtoIGMP)<<24 || le.Uint32(b[20:24]) != 0x0494 {
			break
		}
		z := uint64(b[12])<<56 | uint64(b[13])<<48 | uint64(b[14])<<40 | uint64(b[15])<<32 |
			uint64(b[16])<<24 | uint64(b[17])<<16 | uint64(b[18])<<8 | uint64(b[19])
		p.SrcHi, p.DstHi = 0, 0
		p.SrcLo, p.DstLo = z>>32|mapped, uint64(uint32(z))|mapped
		p.Seq, p.Ports = 0, 0
		p.Window, p.TCPFlags, p.TCPOffset, p.Ack = 0, 0, 0, 0
		m := uint32(le.Uint16(b[0:2])) - 0x46 + 4
		p.Version, p.TOS, p.ExtHdrs, p.Reason = uint8(m), uint8(m>>8), uint8(m>>16), Reason(m>>24)
		p.Len = uint32(total)
		q := uint64(y+uint32(OptRouterAlert)<<8)<<32 | uint64(uint16(x))
		p.IPID, p.Frag, p.IPOptions, p.TTL, p.Proto = uint32(q), uint8(q>>32), uint8(q>>40), uint8(q>>48), uint8(q>>56)
		p.Payload, p.L4, p.ICMPCode, p.ICMPType, p.FragOff = 24, 24, 0, 0, 0
		return ReasonNone
	}
	return p.full(b)
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
