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
	// it, all offsets are constants, addresses are moved as they are, and fields that are neighbours are cut
	// from one word, because the compiler then joins their stores. It also joins the
	// loads that are written out byte by byte; the functions of encoding/binary would
	// leave a no-op each. No constant may show up in such a word as a whole field, or
	// the compiler stores that field apart: hence the rotation.
	if len(b) < 20 {
		*p = Packet{Reason: ReasonShort}
		return ReasonShort
	}
	switch {
	case b[0] == 0x45:
		x := uint32(b[2])<<24 | uint32(b[3])<<16 | uint32(b[4])<<8 | uint32(b[5]) // length 16, id 16
		y := uint32(b[6]) | uint32(b[7])<<8 | uint32(b[8])<<16 | uint32(b[9])<<24 // protocol, TTL, rest of offset, flags and offset
		total := int(x >> 16)
		rest := total - 20
		if total > len(b) || y&0xff3f != 0 {
			break
		}
		src := uint64(b[12])<<32 | uint64(b[13])<<40 | uint64(b[14])<<48 | uint64(b[15])<<56
		dst := uint64(b[16])<<32 | uint64(b[17])<<40 | uint64(b[18])<<48 | uint64(b[19])<<56
		p.SrcIP = [16]byte{}
		le.PutUint64(p.SrcIP[8:16], src|mapped)
		p.DstIP[0], p.DstIP[1], p.DstIP[2], p.DstIP[3], p.DstIP[4], p.DstIP[5], p.DstIP[6], p.DstIP[7] = 0, 0, 0, 0, 0, 0, 0, 0
		le.PutUint64(p.DstIP[8:16], dst|mapped)
		p.L4, p.ExtHdrs, p.Reason = 20, 0, 0
		m := (uint16(b[0]) | uint16(b[1])<<8) - 0x45 + 4
		p.Version, p.TOS = uint8(m), uint8(m>>8)
		p.Rest = uint16(rest)
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
			p.Seq, p.Ports = uint32(u), uint32(u>>32)
			p.Aux, p.TCPFlags, p.Offset, p.Ack = uint16(v), uint8(v>>16), uint8(v>>24), uint32(v>>32)
			if n := int(uint32(v) >> 26); n < 20 || n > rest { // the header's length, plus 0 to 3 by reserved bits
				break
			}
			return ReasonNone
		}
		if total < 28 {
			break
		}
		if b[9] == ProtoUDP {
			if n := int(uint16(b[24])<<8 | uint16(b[25])); n < 8 || n > rest {
				break
			}
			p.Seq, p.Ports = 0, uint32(b[20])<<24|uint32(b[21])<<16|uint32(b[22])<<8|uint32(b[23])
			p.Aux, p.TCPFlags, p.Offset, p.Ack = 0, 0, 2<<4, 0
			return ReasonNone
		}
		if b[9] == ProtoICMP {
			p.Seq, p.Ports = uint32(b[24])<<24|uint32(b[25])<<16|uint32(b[26])<<8|uint32(b[27]), 0
			p.Aux, p.TCPFlags, p.Offset, p.Ack = uint16(b[20])<<8|uint16(b[21]), 0, 2<<4, 0
			return ReasonNone
		}
	case b[0] >= 0x60 && b[0] < 0x70:
		x := uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7]) // payload length 16, next header 8, hop limit 8
		rest := int(x >> 16)
		total := rest + 40
		if total > len(b) ||
			uint32(b[16])|uint32(b[17])<<8|uint32(b[18])<<16|uint32(b[19])<<24 == mapped ||
			uint32(b[32])|uint32(b[33])<<8|uint32(b[34])<<16|uint32(b[35])<<24 == mapped {
			break
		}
		p.SrcIP = [16]byte(b[8:24])
		p.DstIP = [16]byte(b[24:40])
		p.L4, p.ExtHdrs, p.Reason = 40, 0, 0
		m := bits.RotateLeft16(uint16(b[0])|uint16(b[1])<<8, -4) & 0xff0f
		p.Version, p.TOS = uint8(m), uint8(m>>8)
		p.Rest = uint16(rest)
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
			p.Seq, p.Ports = uint32(u), uint32(u>>32)
			p.Aux, p.TCPFlags, p.Offset, p.Ack = uint16(v), uint8(v>>16), uint8(v>>24), uint32(v>>32)
			if n := int(uint32(v) >> 26); n < 20 || n > rest {
				break
			}
			return ReasonNone
		}
		if total < 48 {
			break
		}
		if b[6] == ProtoUDP {
			if n := int(uint16(b[44])<<8 | uint16(b[45])); n < 8 || n > rest {
				break
			}
			p.Seq, p.Ports = 0, uint32(b[40])<<24|uint32(b[41])<<16|uint32(b[42])<<8|uint32(b[43])
			p.Aux, p.TCPFlags, p.Offset, p.Ack = 0, 0, 2<<4, 0
			return ReasonNone
		}
		if b[6] == ProtoICMPv6 {
			p.Seq, p.Ports = uint32(b[44])<<24|uint32(b[45])<<16|uint32(b[46])<<8|uint32(b[47]), 0
			p.Aux, p.TCPFlags, p.Offset, p.Ack = uint16(b[40])<<8|uint16(b[41]), 0, 2<<4, 0
			return ReasonNone
		}
	case b[0] == 0x46: // IGMP, which always has the router alert and no other option
		x := uint32(b[2])<<24 | uint32(b[3])<<16 | uint32(b[4])<<8 | uint32(b[5])
		y := uint32(b[6]) | uint32(b[7])<<8 | uint32(b[8])<<16 | uint32(b[9])<<24
		total := int(x >> 16)
		if total > len(b) || total < 24 || y&0xff00ff3f != uint32(ProtoIGMP)<<24 || uint32(b[20])|uint32(b[21])<<8|uint32(b[22])<<16|uint32(b[23])<<24 != 0x0494 {
			break
		}
		src := uint64(b[12])<<32 | uint64(b[13])<<40 | uint64(b[14])<<48 | uint64(b[15])<<56
		dst := uint64(b[16])<<32 | uint64(b[17])<<40 | uint64(b[18])<<48 | uint64(b[19])<<56
		*p = Packet{}
		le.PutUint64(p.SrcIP[8:16], src|mapped)
		le.PutUint64(p.DstIP[8:16], dst|mapped)
		p.L4, p.ExtHdrs, p.Reason = 24, 0, 0
		m := (uint16(b[0]) | uint16(b[1])<<8) - 0x46 + 4
		p.Version, p.TOS = uint8(m), uint8(m>>8)
		p.Rest = uint16(total - 24)
		q := uint64(y+uint32(OptRouterAlert)<<8)<<32 | uint64(uint16(x))
		p.IPID, p.Frag, p.IPOptions, p.TTL, p.Proto = uint32(q), uint8(q>>32), uint8(q>>40), uint8(q>>48), uint8(q>>56)
		return ReasonNone
	}
	return p.full(b)
}

// mapped are bytes 8 to 11 of an IPv4-mapped address, as a little-endian word.
const mapped = 0xffff << 16

// DecodeBatch decodes bufs[i] into out[i] for every i that both slices have
// and returns how many that are.
func DecodeBatch(bufs [][]byte, out []Packet) int {
	n := min(len(bufs), len(out))
	for i := range n {
		out[i].Decode(bufs[i])
	}
	return n
}
