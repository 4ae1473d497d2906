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
// does not verify checksums (a checksum may be left to the network card).
//
// The order of the checks, which the kernel engine shares, is in docs/design/0002-decoder.md.
//
//go:nosplit
func (p *Packet) Decode(b []byte) Reason {
	// This is the fast path for whole packets of TCP, UDP, ICMP and IGMP without other options or
	// extension headers. It leaves every other packet, and every malformed one, to full, which
	// starts again. Read full for the meaning; tests compare the two.
	//
	// The cost is the number of instructions and of stores; a CPU does at most two stores in a
	// cycle. That explains the form of the code:
	//
	//   - It calls nothing, and all offsets are constants.
	//   - Neighbours are read and written together. The compiler combines loads that are written
	//     out byte by byte (the functions of encoding/binary would leave a no-op each), and stores
	//     that are cut from one word.
	//   - The compiler does not combine a constant with a variable. So there are rotations, which
	//     hide zeros from it. Where constants stand beside variables, the order of the stores
	//     keeps it from trying.
	//   - A store is between the tests of b[0] and the load of h, since otherwise the byte would be
	//     read twice.
	//   - The protocols are compared first and read after, so that each takes at most one jump.
	if len(b) < 20 {
		*p = Packet{}
		p.Reason = ReasonShort
		return ReasonShort
	}
	switch {
	case b[0] == 0x45:
		p.L4, p.ExtHdrs, p.Reason = 20, 0, 0
		h := uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32 |
			uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7])
		total := int(uint16(h >> 32))
		if total > len(b) || h&0xbfff != 0 {
			break
		}
		src := uint64(b[12])<<32 | uint64(b[13])<<40 | uint64(b[14])<<48 | uint64(b[15])<<56
		dst := uint64(b[16])<<32 | uint64(b[17])<<40 | uint64(b[18])<<48 | uint64(b[19])<<56
		p.SrcIP[0], p.SrcIP[1], p.SrcIP[2], p.SrcIP[3],
			p.SrcIP[4], p.SrcIP[5], p.SrcIP[6], p.SrcIP[7] = 0, 0, 0, 0, 0, 0, 0, 0
		p.DstIP[0], p.DstIP[1], p.DstIP[2], p.DstIP[3],
			p.DstIP[4], p.DstIP[5], p.DstIP[6], p.DstIP[7] = 0, 0, 0, 0, 0, 0, 0, 0
		le.PutUint64(p.SrcIP[8:16], src|mapped)
		le.PutUint64(p.DstIP[8:16], dst|mapped)
		q := uint32(h>>32) - (0x45-4)<<24 - 20
		y := uint32(b[6]) | uint32(b[7])<<8 | uint32(b[8])<<16 | uint32(b[9])<<24
		p.rest, p.TOS, p.Version = uint16(q), uint8(q>>16), uint8(q>>24)
		r := uint64(y)<<32 | uint64(uint32(h)>>16)
		p.IPID, p.Frag, p.IPOptions, p.TTL, p.Proto = uint32(r), uint8(r>>32), uint8(r>>40),
			uint8(r>>48), Proto(r>>56)
		if b[9] != ProtoTCP {
			if b[9] != ProtoUDP {
				if b[9] != ProtoICMP || total < 28 {
					break
				}
				u := uint64(b[20])<<56 | uint64(b[21])<<48 | uint64(b[22])<<40 | uint64(b[23])<<32 |
					uint64(b[24])<<24 | uint64(b[25])<<16 | uint64(b[26])<<8 | uint64(b[27])
				v := uint32(u>>48) | 2<<28
				w := bits.RotateLeft64(uint64(v), 32)
				p.Ack = 0
				p.Seq = uint32(u)
				p.Ports, p.aux, p.TCPFlags, p.offset = uint32(w), uint16(w>>32), uint8(w>>48),
					uint8(w>>56)
				return ReasonNone
			}
			if total < 28 {
				break
			}
			u := uint64(b[20])<<56 | uint64(b[21])<<48 | uint64(b[22])<<40 | uint64(b[23])<<32 |
				uint64(b[24])<<24 | uint64(b[25])<<16 | uint64(b[26])<<8 | uint64(b[27])
			if n := int(uint32(u) >> 16); n < 8 || n > total-20 {
				break
			}
			u = bits.RotateLeft64(u>>32, 32)
			p.Seq, p.Ports = uint32(u), uint32(u>>32)
			p.aux, p.TCPFlags, p.offset, p.Ack = 0, 0, 2<<4, 0
			return ReasonNone
		}
		if total < 40 {
			break
		}
		u := uint64(b[20])<<56 | uint64(b[21])<<48 | uint64(b[22])<<40 | uint64(b[23])<<32 |
			uint64(b[24])<<24 | uint64(b[25])<<16 | uint64(b[26])<<8 | uint64(b[27])
		v := uint64(b[28])<<56 | uint64(b[29])<<48 | uint64(b[30])<<40 | uint64(b[31])<<32 |
			uint64(b[32])<<24 | uint64(b[33])<<16 | uint64(b[34])<<8 | uint64(b[35])
		p.Seq, p.Ports = uint32(u), uint32(u>>32)
		p.aux, p.TCPFlags, p.offset, p.Ack = uint16(v), uint8(v>>16), uint8(v>>24), uint32(v>>32)
		// the header's length, plus 0 to 3 from reserved bits
		if n := int(uint32(v) >> 26); n < 20 || n > total-20 {
			break
		}
		return ReasonNone
	case b[0] == 0x46: // IGMP, which always has the router alert and no other option
		p.L4, p.ExtHdrs, p.Reason = 24, 0, 0
		h := uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32 |
			uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7])
		total := int(uint16(h >> 32))
		if total > len(b) || total < 24 || b[9] != ProtoIGMP || h&0xbfff != 0 ||
			uint32(b[20])|uint32(b[21])<<8|uint32(b[22])<<16|uint32(b[23])<<24 != 0x0494 {
			break
		}
		src := uint64(b[12])<<32 | uint64(b[13])<<40 | uint64(b[14])<<48 | uint64(b[15])<<56
		dst := uint64(b[16])<<32 | uint64(b[17])<<40 | uint64(b[18])<<48 | uint64(b[19])<<56
		p.SrcIP[0], p.SrcIP[1], p.SrcIP[2], p.SrcIP[3],
			p.SrcIP[4], p.SrcIP[5], p.SrcIP[6], p.SrcIP[7] = 0, 0, 0, 0, 0, 0, 0, 0
		p.DstIP[0], p.DstIP[1], p.DstIP[2], p.DstIP[3],
			p.DstIP[4], p.DstIP[5], p.DstIP[6], p.DstIP[7] = 0, 0, 0, 0, 0, 0, 0, 0
		le.PutUint64(p.SrcIP[8:16], src|mapped)
		le.PutUint64(p.DstIP[8:16], dst|mapped)
		q := uint32(h>>32) - (0x46-4)<<24 - 24
		y := uint32(b[6]) | uint32(b[7])<<8 | uint32(b[8])<<16 | uint32(b[9])<<24
		y += uint32(OptRouterAlert) << 8
		p.rest, p.TOS, p.Version = uint16(q), uint8(q>>16), uint8(q>>24)
		p.Frag, p.IPOptions, p.TTL, p.Proto = uint8(y), uint8(y>>8), uint8(y>>16), Proto(y>>24)
		p.IPID = uint32(h) >> 16
		p.Seq, p.Ports, p.aux, p.TCPFlags, p.offset, p.Ack = 0, 0, 0, 0, 0, 0
		return ReasonNone
	case b[0]>>4 == 6:
		p.L4, p.ExtHdrs, p.Reason = 40, 0, 0
		h := uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32 |
			uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7])
		rest := int(uint16(h >> 16))
		total := rest + 40
		if total > len(b) ||
			uint32(b[16])|uint32(b[17])<<8|uint32(b[18])<<16|uint32(b[19])<<24 == mapped ||
			uint32(b[32])|uint32(b[33])<<8|uint32(b[34])<<16|uint32(b[35])<<24 == mapped {
			break
		}
		p.SrcIP = [16]byte(b[8:24])
		p.DstIP = [16]byte(b[24:40])
		q := uint32(h>>52)<<16 | uint32(rest)
		r := bits.RotateLeft64(uint64(uint16(h)), 48)
		p.rest, p.TOS, p.Version = uint16(q), uint8(q>>16), uint8(q>>24)
		p.IPID, p.Frag, p.IPOptions, p.TTL, p.Proto = uint32(r), uint8(r>>32), uint8(r>>40),
			uint8(r>>48), Proto(r>>56)
		if b[6] != ProtoTCP {
			if b[6] != ProtoUDP {
				if b[6] != ProtoICMPv6 || total < 48 {
					break
				}
				u := uint64(b[40])<<56 | uint64(b[41])<<48 | uint64(b[42])<<40 | uint64(b[43])<<32 |
					uint64(b[44])<<24 | uint64(b[45])<<16 | uint64(b[46])<<8 | uint64(b[47])
				v := uint32(u>>48) | 2<<28
				w := bits.RotateLeft64(uint64(v), 32)
				p.Ack = 0
				p.Seq = uint32(u)
				p.Ports, p.aux, p.TCPFlags, p.offset = uint32(w), uint16(w>>32), uint8(w>>48),
					uint8(w>>56)
				return ReasonNone
			}
			if total < 48 {
				break
			}
			u := uint64(b[40])<<56 | uint64(b[41])<<48 | uint64(b[42])<<40 | uint64(b[43])<<32 |
				uint64(b[44])<<24 | uint64(b[45])<<16 | uint64(b[46])<<8 | uint64(b[47])
			if n := int(uint32(u) >> 16); n < 8 || n > total-40 {
				break
			}
			u = bits.RotateLeft64(u>>32, 32)
			p.Seq, p.Ports = uint32(u), uint32(u>>32)
			p.aux, p.TCPFlags, p.offset, p.Ack = 0, 0, 2<<4, 0
			return ReasonNone
		}
		if total < 60 {
			break
		}
		u := uint64(b[40])<<56 | uint64(b[41])<<48 | uint64(b[42])<<40 | uint64(b[43])<<32 |
			uint64(b[44])<<24 | uint64(b[45])<<16 | uint64(b[46])<<8 | uint64(b[47])
		v := uint64(b[48])<<56 | uint64(b[49])<<48 | uint64(b[50])<<40 | uint64(b[51])<<32 |
			uint64(b[52])<<24 | uint64(b[53])<<16 | uint64(b[54])<<8 | uint64(b[55])
		p.Seq, p.Ports = uint32(u), uint32(u>>32)
		p.aux, p.TCPFlags, p.offset, p.Ack = uint16(v), uint8(v>>16), uint8(v>>24), uint32(v>>32)
		// the header's length, plus 0 to 3 from reserved bits
		if n := int(uint32(v) >> 26); n < 20 || n > total-40 {
			break
		}
		return ReasonNone
	}
	return p.full(b)
}

// mapped are bytes 8 to 11 of an IPv4-mapped address, as a little-endian word.
const mapped = 0xffff << 16
