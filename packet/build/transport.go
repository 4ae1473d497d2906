package build

import (
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// TCP is a TCP header. Options are padded to a multiple of 4 bytes with zeros.
type TCP struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            uint8
	Window, Urgent   uint16
	Options          []byte
	Partial          bool // leave the checksum to the network card: pseudo-header sum only
}

// UDP is a UDP header.
type UDP struct {
	SrcPort, DstPort uint16
	Len              uint16 // zero: the actual length
	NoChecksum       bool   // send none: zero
	Partial          bool   // leave the checksum to the network card: pseudo-header sum only
}

// UDPLite is a UDP-Lite header (RFC 3828). Coverage 0 covers everything.
type UDPLite struct {
	SrcPort, DstPort uint16
	Coverage         uint16
}

// SCTP is an SCTP common header; chunks follow as Data. The checksum is CRC32c.
type SCTP struct {
	SrcPort, DstPort uint16
	VTag             uint32
}

// ICMP is the first 8 bytes of an ICMP message. Rest holds bytes 4 to 7.
type ICMP struct {
	Type, Code uint8
	Rest       uint32
}

// ICMPv6 is the first 8 bytes of an ICMPv6 message. Rest holds bytes 4 to 7.
type ICMPv6 struct {
	Type, Code uint8
	Rest       uint32
}

// IGMP is an IGMP message: version 2, or the first 8 bytes of version 3.
type IGMP struct {
	Type, MaxResp uint8
	Group         netip.Addr
}

// GRE is a GRE header without optional fields.
type GRE struct{ Type uint16 }

// ESP is the start of an encrypted payload.
type ESP struct{ SPI, Seq uint32 }

func (TCP) number() int     { return int(packet.ProtoTCP) }
func (UDP) number() int     { return int(packet.ProtoUDP) }
func (UDPLite) number() int { return int(packet.ProtoUDPLite) }
func (SCTP) number() int    { return int(packet.ProtoSCTP) }
func (ICMP) number() int    { return int(packet.ProtoICMP) }
func (ICMPv6) number() int  { return int(packet.ProtoICMPv6) }
func (IGMP) number() int    { return int(packet.ProtoIGMP) }
func (GRE) number() int     { return int(packet.ProtoGRE) }
func (ESP) number() int     { return int(packet.ProtoESP) }

func (l TCP) wrap(rest []byte, c context) ([]byte, error) {
	if len(l.Options) > 40 {
		return nil, fmt.Errorf("TCP options of %d bytes: at most 40", len(l.Options))
	}
	n := 20 + (len(l.Options)+3)&^3
	h := make([]byte, n, n+len(rest))
	be.PutUint16(h, l.SrcPort)
	be.PutUint16(h[2:], l.DstPort)
	be.PutUint32(h[4:], l.Seq)
	be.PutUint32(h[8:], l.Ack)
	h[12], h[13] = uint8(n/4)<<4, l.Flags
	be.PutUint16(h[14:], l.Window)
	be.PutUint16(h[18:], l.Urgent)
	copy(h[20:], l.Options)
	h = append(h, rest...)
	pseudo := pseudoSum(c, packet.ProtoTCP, len(h))
	if l.Partial {
		be.PutUint16(h[16:], fold(pseudo))
	} else {
		be.PutUint16(h[16:], ^fold(sum(pseudo, h)))
	}
	return h, nil
}

// portHeader makes an 8-byte header of ports, a 16-bit field, and space for a checksum.
func portHeader(src, dst, field uint16, rest []byte) []byte {
	h := make([]byte, 8, 8+len(rest))
	be.PutUint16(h, src)
	be.PutUint16(h[2:], dst)
	be.PutUint16(h[4:], field)
	return append(h, rest...)
}

func (l UDP) wrap(rest []byte, c context) ([]byte, error) {
	h := portHeader(l.SrcPort, l.DstPort, or(l.Len, uint16(8+len(rest))), rest)
	pseudo := pseudoSum(c, packet.ProtoUDP, len(h))
	switch {
	case l.NoChecksum:
	case l.Partial:
		be.PutUint16(h[6:], fold(pseudo))
	default:
		be.PutUint16(h[6:], or(^fold(sum(pseudo, h)), 0xffff))
	}
	return h, nil
}

func (l UDPLite) wrap(rest []byte, c context) ([]byte, error) {
	h := portHeader(l.SrcPort, l.DstPort, l.Coverage, rest)
	covered := h
	if int(l.Coverage) >= 8 && int(l.Coverage) < len(h) {
		covered = h[:l.Coverage]
	}
	be.PutUint16(h[6:], or(^fold(sum(pseudoSum(c, packet.ProtoUDPLite, len(h)), covered)), 0xffff))
	return h, nil
}

// castagnoli is the polynomial of SCTP (RFC 4960 appendix B).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (l SCTP) wrap(rest []byte, _ context) ([]byte, error) {
	h := make([]byte, 12, 12+len(rest))
	be.PutUint16(h, l.SrcPort)
	be.PutUint16(h[2:], l.DstPort)
	be.PutUint32(h[4:], l.VTag)
	h = append(h, rest...)
	crc := crc32.Checksum(h, castagnoli)
	le.PutUint32(h[8:], crc)
	return h, nil
}

// icmpHeader makes 8 bytes of an ICMP-like message.
func icmpHeader(kind, code uint8, rest uint32, data []byte) []byte {
	h := make([]byte, 8, 8+len(data))
	h[0], h[1] = kind, code
	be.PutUint32(h[4:], rest)
	return append(h, data...)
}

func (l ICMP) wrap(rest []byte, _ context) ([]byte, error) {
	h := icmpHeader(l.Type, l.Code, l.Rest, rest)
	be.PutUint16(h[2:], ^fold(sum(0, h)))
	return h, nil
}

func (l ICMPv6) wrap(rest []byte, c context) ([]byte, error) {
	h := icmpHeader(l.Type, l.Code, l.Rest, rest)
	be.PutUint16(h[2:], ^fold(sum(pseudoSum(c, packet.ProtoICMPv6, len(h)), h)))
	return h, nil
}

func (l IGMP) wrap(rest []byte, _ context) ([]byte, error) {
	if l.Group.IsValid() && !l.Group.Is4() {
		return nil, fmt.Errorf("IGMP group %v: want an IPv4 address", l.Group)
	}
	_, group := packet.AddrWords(l.Group)
	h := icmpHeader(l.Type, l.MaxResp, uint32(group), rest)
	be.PutUint16(h[2:], ^fold(sum(0, h)))
	return h, nil
}

func (l GRE) wrap(rest []byte, c context) ([]byte, error) {
	h := be.AppendUint16(make([]byte, 2, 4+len(rest)), or(l.Type, c.ether))
	return append(h, rest...), nil
}

func (l ESP) wrap(rest []byte, _ context) ([]byte, error) {
	h := be.AppendUint32(make([]byte, 0, 8+len(rest)), l.SPI)
	h = be.AppendUint32(h, l.Seq)
	return append(h, rest...), nil
}
