package enginetest

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// craft puts packets together byte by byte, so that wrong ones can be made too. Checksums are left
// 0: no engine looks at them.
type craft struct {
	src, dst netip.Addr
	proto    packet.Proto
	ttl, tos uint8
	id       uint32
	frag     uint16 // IPv4: flags and offset; IPv6: offset*8 and M of a fragment header if isFrag
	isFrag   bool
	options  []byte // IPv4 options, or whole IPv6 extension headers
	first    uint8  // IPv6: protocol of the first extension header in options
	body     []byte
}

func (c *craft) bytes() []byte {
	if c.src.Is4() {
		return c.v4()
	}
	return c.v6()
}

func (c *craft) v4() []byte {
	ihl := 20 + len(c.options)
	b := make([]byte, ihl, ihl+len(c.body))
	b[0], b[1] = 0x40|byte(ihl/4), c.tos
	binary.BigEndian.PutUint16(b[2:], uint16(ihl+len(c.body)))
	binary.BigEndian.PutUint16(b[4:], uint16(c.id))
	binary.BigEndian.PutUint16(b[6:], c.frag)
	b[8], b[9] = c.ttl, byte(c.proto)
	src, dst := c.src.As4(), c.dst.As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	copy(b[20:], c.options)
	return append(b, c.body...)
}

func (c *craft) v6() []byte {
	ext, next := c.options, c.proto
	if c.isFrag {
		f := make([]byte, 8)
		f[0] = byte(c.proto)
		binary.BigEndian.PutUint16(f[2:], c.frag)
		binary.BigEndian.PutUint32(f[4:], c.id)
		next = packet.ProtoFragment
		if len(ext) > 0 {
			ext = append([]byte(nil), ext...)
			ext[0] = byte(next)
		}
		ext = append(ext, f...)
	} else if len(ext) > 0 {
		ext = append([]byte(nil), ext...)
		ext[0] = byte(c.proto)
	}
	if len(c.options) > 0 {
		next = packet.Proto(c.first)
	}
	b := make([]byte, 40, 40+len(ext)+len(c.body))
	b[0], b[1] = 0x60|c.tos>>4, c.tos<<4
	binary.BigEndian.PutUint16(b[4:], uint16(len(ext)+len(c.body)))
	b[6], b[7] = byte(next), c.ttl
	src, dst := c.src.As16(), c.dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	return append(append(b, ext...), c.body...)
}

// tcpBody returns a TCP segment; scale 0xff leaves the option out.
func tcpBody(sport, dport uint16, seq, ack uint32, flags uint8, window uint16, scale uint8,
	data int) []byte {
	header := 20
	if scale != 0xff {
		header = 24
	}
	b := make([]byte, header+data)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	binary.BigEndian.PutUint32(b[4:], seq)
	binary.BigEndian.PutUint32(b[8:], ack)
	b[12], b[13] = byte(header/4)<<4, flags
	binary.BigEndian.PutUint16(b[14:], window)
	if header == 24 {
		copy(b[20:], []byte{1, 3, 3, scale})
	}
	return b
}

// udpBody returns a UDP or UDP-Lite datagram.
func udpBody(sport, dport uint16, data int) []byte {
	b := make([]byte, 8+data)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// sctpInit returns an SCTP packet with an INIT or INIT ACK that asks for a tag.
func sctpInit(sport, dport uint16, tag uint32, chunk uint8, asks uint32) []byte {
	b := append(sctpBody(sport, dport, tag, chunk, 0), make([]byte, 16)...)
	b[15] = 20
	binary.BigEndian.PutUint32(b[16:], asks)
	return b
}

// sctpBody returns an SCTP packet with one chunk.
func sctpBody(sport, dport uint16, tag uint32, chunk, bits uint8) []byte {
	b := make([]byte, 16)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	binary.BigEndian.PutUint32(b[4:], tag)
	b[12], b[13], b[15] = chunk, bits, 4
	return b
}

// icmpBody returns an ICMP or ICMPv6 message.
func icmpBody(typ, code uint8, id uint16, data []byte) []byte {
	b := make([]byte, 8, 8+len(data))
	b[0], b[1] = typ, code
	binary.BigEndian.PutUint16(b[4:], id)
	return append(b, data...)
}
