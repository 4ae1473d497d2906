package enginetest

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// malformed returns a packet with one thing wrong of all that decoders must find. Random damage
// would hit few of them.
func (g random) malformed() []byte {
	c := craft{src: g.addr(false), dst: g.addr(false), proto: packet.ProtoUDP, ttl: 64,
		id: g.Uint32N(8), body: udpBody(4000, 53, 8)}
	if g.chance(50) {
		return c.broken4(g)
	}
	c.src, c.dst = g.addr(true), g.addr(true)
	return c.broken6(g)
}

// broken4 makes an IPv4 packet of a craft and breaks something that concerns all packets, or IPv4
// alone.
func (c craft) broken4(g random) []byte {
	switch g.IntN(9) {
	case 0: // too short for any header
		return c.bytes()[:g.IntN(20)]
	case 1: // neither version
		b := c.bytes()
		b[0] = b[0]&15 | []uint8{0, 5, 7, 15}[g.IntN(4)]<<4
		return b
	case 2: // header length below 20
		b := c.bytes()
		b[0] = 0x40 | uint8(g.IntN(5))
		return b
	case 3: // longer than the buffer, or shorter than the header
		b := c.bytes()
		binary.BigEndian.PutUint16(b[2:],
			[]uint16{uint16(len(b) + 1 + g.IntN(9)), uint16(g.IntN(20))}[g.IntN(2)])
		return b
	case 4: // an option of no length, or beyond the header
		c.options = [][]byte{{7, 1, 0, 0}, {7, 5, 0, 0}, {1, 1, 1, 7}, {131, 3, 4, 68}}[g.IntN(4)]
		return c.bytes()
	}
	return c.broken(g)
}

// broken6 makes an IPv6 packet of a craft and breaks something of its extension headers, or of what
// concerns all.
func (c craft) broken6(g random) []byte {
	pad := func(next, words uint8) []byte { return []byte{next, words, 1, 4, 0, 0, 0, 0} }
	const hop, to, frag = packet.ProtoHopByHop, packet.ProtoDestination, packet.ProtoFragment
	switch g.IntN(14) {
	case 0: // an IPv4-mapped address
		b := c.bytes()
		mapped := netip.MustParseAddr("::ffff:10.0.0.2").As16()
		copy(b[8+16*g.IntN(2):], mapped[:])
		return b
	case 1: // a jumbogram, as it is and as its option
		if g.chance(50) {
			c.first, c.options = hop, pad(0, 0)
			b := c.bytes()
			b[4], b[5] = 0, 0
			return b
		}
		c.first, c.options = hop, []byte{0, 0, 0xc2, 4, 0, 1, 0, 0}
	case 2: // nine headers, or eight
		c.proto, c.body = to, append(pad(uint8(c.proto), 0), c.body...)
		for range 7 + g.IntN(2) {
			c.body = append(pad(to, 0), c.body...)
		}
	case 3: // hop-by-hop that is not the first
		c.body = append(pad(hop, 0), append(pad(uint8(c.proto), 0), c.body...)...)
		c.proto = to
	case 4: // a second fragment header
		c.isFrag, c.body = true, append([]byte{byte(c.proto), 0, 0, 0, 0, 0, 0, 9}, c.body...)
		c.proto = frag
	case 5: // a header beyond the packet, perhaps in a first fragment
		c.body = pad(uint8(c.proto), uint8(3+g.IntN(9)))
		c.proto = to
		if g.chance(30) {
			c.isFrag, c.frag = true, 1
		}
	case 6: // a hop-by-hop option beyond its header, or one of 17
		c.first, c.options = hop, [][]byte{{0, 0, 5, 9, 0, 0, 1, 0}, {0, 0, 1, 1, 0, 1, 1, 5},
			{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}[g.IntN(3)]
	case 7: // cut off within the IPv6 header
		return c.bytes()[:20+g.IntN(20)]
	default:
		return c.broken(g)
	}
	return c.bytes()
}

// broken breaks a fragment or a transport header.
func (c craft) broken(g random) []byte {
	v6 := c.src.Is6()
	piece := func(off uint16, more bool) {
		c.isFrag, c.frag = true, off/8
		if more {
			c.frag |= 0x2000
		}
		if v6 {
			c.frag = off
			if more {
				c.frag |= 1
			}
		}
	}
	segment := tcpBody(4000, 22, 1000, 0, packet.FlagSYN, 100, 0xff, 20)
	switch g.IntN(8) {
	case 0: // not the last fragment and no multiple of 8, or without data
		piece(8, true)
		c.body = c.body[:[]int{0, 7, 12}[g.IntN(3)]]
	case 1: // past 65535
		piece(65528, g.chance(50))
		c.body = c.body[:16]
	case 2: // a first fragment without the whole transport header
		piece(0, true)
		c.proto, c.body = packet.ProtoTCP, segment[:8*(1+g.IntN(2))]
	case 3: // a later one inside the TCP header
		piece(8*uint16(1+g.IntN(2)), true)
		c.proto, c.body = packet.ProtoTCP, segment[:16]
	case 4: // a transport header that is not whole
		c.proto = []packet.Proto{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDPLite,
			packet.ProtoSCTP}[g.IntN(4)]
		c.body = c.body[:g.IntN(8)]
	case 5: // a TCP data offset below 20 bytes or beyond the packet
		segment[12] = []uint8{0, 4 << 4, 11 << 4, 15 << 4}[g.IntN(4)]
		c.proto, c.body = packet.ProtoTCP, segment
	case 6: // a UDP length below 8 or beyond the packet
		binary.BigEndian.PutUint16(c.body[4:], []uint16{0, 7, 17, 65535}[g.IntN(4)])
	default: // the same of UDP-Lite's coverage, of which 0 is all
		c.proto = packet.ProtoUDPLite
		binary.BigEndian.PutUint16(c.body[4:], []uint16{0, 1, 7, 17}[g.IntN(4)])
	}
	return c.bytes()
}
