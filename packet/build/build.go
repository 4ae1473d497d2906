// Package build makes packets: from layers, from a line of text, and as answers to other packets.
// It is for replies, tests and tools, and allocates.
//
//	b, err := build.Packet(
//		build.IPv4{Src: src, Dst: dst},
//		build.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.FlagSYN},
//	)
//
// Reset and Unreachable make the answers that refuse a packet. ParseText reads the text form that
// packet.Packet.AppendText writes.
package build

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// A Layer is one header, or the data at the end, of a packet to build. Headers are Ethernet, VLAN,
// IPv4, IPv6, HopByHop, Routing, Destination, Fragment, AH, TCP, UDP, UDPLite, SCTP, ICMP, ICMPv6,
// IGMP, GRE, ESP and Upper. The data is Data.
type Layer interface {
	// number is the IP protocol number of the layer, or -1 when it has none.
	number() int
	// wrap returns the header followed by rest, the finished layers above.
	wrap(rest []byte, c context) ([]byte, error)
}

// context is what a layer needs from its neighbours.
type context struct {
	next     int        // protocol number of the layer above, or -1
	ether    uint16     // EtherType of the layer above
	src, dst netip.Addr // of the nearest IP header below
}

// Packet makes a packet or frame of layers, the outermost first. Lengths, header checksums,
// next-protocol numbers and EtherTypes that are zero in a layer are filled in; others are written
// as given, so that tests can build wrong ones. The error names the layer that cannot be written.
func Packet(layers ...Layer) ([]byte, error) {
	var b []byte
	for i := len(layers) - 1; i >= 0; i-- {
		c := context{next: -1}
		if i+1 < len(layers) {
			c.next = layers[i+1].number()
			c.ether = etherType(layers[i+1])
		}
		for _, below := range layers[:i] {
			switch l := below.(type) {
			case IPv4:
				c.src, c.dst = l.Src, l.Dst
			case IPv6:
				c.src, c.dst = l.Src, l.Dst
			}
		}
		var err error
		if b, err = layers[i].wrap(b, c); err != nil {
			return nil, fmt.Errorf("build packet: layer %d: %w", i+1, err)
		}
	}
	return b, nil
}

// etherType returns the EtherType of a layer, 0 when it has none.
func etherType(l Layer) uint16 {
	switch l := l.(type) {
	case IPv4:
		return packet.EtherIPv4
	case IPv6:
		return packet.EtherIPv6
	case VLAN:
		if l.TPID != 0 {
			return l.TPID
		}
		return packet.EtherVLAN
	}
	return 0
}

// Data is the payload at the end of a packet.
type Data []byte

func (Data) number() int { return -1 }

func (d Data) wrap(rest []byte, _ context) ([]byte, error) {
	return append(d[:len(d):len(d)], rest...), nil
}

// Ethernet is an Ethernet II header. A zero Type is that of the layer above.
type Ethernet struct {
	Dst, Src [6]byte
	Type     uint16
}

func (Ethernet) number() int { return -1 }

func (l Ethernet) wrap(rest []byte, c context) ([]byte, error) {
	h := make([]byte, 14, 14+len(rest))
	copy(h, l.Dst[:])
	copy(h[6:], l.Src[:])
	be.PutUint16(h[12:], or(l.Type, c.ether))
	return append(h, rest...), nil
}

// VLAN is an IEEE 802.1Q tag. TPID is the EtherType that announces it, 0x8100 when zero.
type VLAN struct {
	TPID uint16
	TCI  uint16 // priority, drop eligible, and 12 bits of VLAN id
	Type uint16 // EtherType of what follows; zero: of the layer above
}

func (VLAN) number() int { return -1 }

func (l VLAN) wrap(rest []byte, c context) ([]byte, error) {
	h := be.AppendUint16(make([]byte, 0, 4+len(rest)), l.TCI)
	h = be.AppendUint16(h, or(l.Type, c.ether))
	return append(h, rest...), nil
}

// or returns a, or b when a is zero.
func or[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

// IPv4 is an IPv4 header. The zero TTL stands for 64. Options are padded to a
// multiple of 4 bytes. The checksum is always right.
type IPv4 struct {
	Src, Dst netip.Addr
	TOS, TTL uint8
	Proto    packet.Proto // zero: of the layer above
	ID       uint16
	Flags    uint8  // FragMF, FragDF, FragRF
	FragOff  uint16 // in bytes, a multiple of 8
	Len      uint16 // total length; zero: the actual length
	Options  []byte
}

func (IPv4) number() int { return 4 }

func (l IPv4) wrap(rest []byte, c context) ([]byte, error) {
	if !l.Src.Is4() || !l.Dst.Is4() {
		return nil, fmt.Errorf("IPv4 header with addresses %v and %v: want IPv4 addresses", l.Src,
			l.Dst)
	}
	if l.FragOff%8 != 0 || len(l.Options) > 40 {
		return nil, errors.New("IPv4 header: fragment offset not a multiple of 8, or more than " +
			"40 bytes of options")
	}
	ihl := 20 + (len(l.Options)+3)&^3
	if ihl+len(rest) > 65535 {
		return nil, fmt.Errorf("IPv4 packet of %d bytes: at most 65535", ihl+len(rest))
	}
	h := make([]byte, ihl, ihl+len(rest))
	h[0], h[1] = 0x40|uint8(ihl/4), l.TOS
	be.PutUint16(h[2:], or(l.Len, uint16(ihl+len(rest))))
	be.PutUint16(h[4:], l.ID)
	be.PutUint16(h[6:], uint16(l.Flags&0xe0)<<8|l.FragOff>>3)
	h[8], h[9] = or(l.TTL, 64), byte(or(l.Proto, packet.Proto(upper(c.next))))
	src, dst := l.Src.As4(), l.Dst.As4()
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	copy(h[20:], l.Options)
	be.PutUint16(h[10:], ^fold(sum(0, h)))
	return append(h, rest...), nil
}

// upper returns the protocol number for a header whose upper layer is n.
func upper(n int) uint8 {
	if n < 0 {
		return packet.ProtoNoNext
	}
	return uint8(n)
}

// IPv6 is an IPv6 header. The zero HopLimit stands for 64.
type IPv6 struct {
	Src, Dst netip.Addr
	Class    uint8  // traffic class
	Label    uint32 // flow label, 20 bits
	HopLimit uint8
	Next     uint8  // zero: of the layer above
	Len      uint16 // payload length; zero: the actual length
}

func (IPv6) number() int { return 41 }

func (l IPv6) wrap(rest []byte, c context) ([]byte, error) {
	if !l.Src.Is6() || !l.Dst.Is6() {
		return nil, fmt.Errorf("IPv6 header with addresses %v and %v: want IPv6 addresses", l.Src,
			l.Dst)
	}
	if len(rest) > 65535 {
		return nil, fmt.Errorf("IPv6 payload of %d bytes: at most 65535", len(rest))
	}
	h := make([]byte, 40, 40+len(rest))
	be.PutUint32(h, 6<<28|uint32(l.Class)<<20|l.Label&0xfffff)
	be.PutUint16(h[4:], or(l.Len, uint16(len(rest))))
	h[6], h[7] = l.Next, or(l.HopLimit, 64)
	if l.Next == 0 {
		h[6] = upper(c.next)
	}
	src, dst := l.Src.As16(), l.Dst.As16()
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
	return append(h, rest...), nil
}
