package packet

// Link is a kind of link-layer header in front of the IP header.
type Link uint8

// The link layers that the decoder reads.
const (
	LinkRaw      Link = iota // none: the bytes start with the IP header
	LinkEthernet             // Ethernet II with up to two VLAN tags
	LinkSLL                  // Linux cooked capture v1
	LinkSLL2                 // Linux cooked capture v2
	// BSD loopback: address family in the byte order of the capturing machine
	LinkNull
	LinkLoop // OpenBSD loopback: address family in network order
)

// EtherTypes that the decoder knows.
const (
	EtherIPv4 uint16 = 0x0800
	EtherARP  uint16 = 0x0806
	EtherVLAN uint16 = 0x8100 // IEEE 802.1Q
	EtherIPv6 uint16 = 0x86dd
	EtherQinQ uint16 = 0x88a8 // IEEE 802.1ad
	etherQOld uint16 = 0x9100 // QinQ before 802.1ad
)

// Frame is the content of a link-layer header.
type Frame struct {
	// of the payload, after VLAN tags; 0 when the link layer has no such number for it
	EtherType uint16
	L3        uint16    // offset of the payload in bytes
	Tags      [2]uint16 // VLAN tag control words, the outer first
	NumTags   uint8     // how many of Tags are set
	Outgoing  bool      // Linux cooked: the packet was sent by the capturing host
}

// IsIP reports whether the payload is IPv4 or IPv6.
func (f Frame) IsIP() bool { return f.EtherType == EtherIPv4 || f.EtherType == EtherIPv6 }

// DecodeFrame reads a frame that starts with a link-layer header of kind l and, when
// it carries IP, the packet in it. For another payload, such as ARP, p is the zero
// Packet: see Frame.EtherType. p.Reason is set for a malformed header of either layer.
// Offsets in p count from the IP header, which is at b[Frame.L3:].
func (p *Packet) DecodeFrame(l Link, b []byte) Frame {
	f, r := ParseFrame(l, b)
	if r != ReasonNone || !f.IsIP() {
		p.refuse(r)
		return f
	}
	ip := b[f.L3:]
	version := byte(4)
	if f.EtherType == EtherIPv6 {
		version = 6
	}
	if len(ip) >= 20 && ip[0]>>4 != version {
		p.refuse(ReasonVersion)
		return f
	}
	p.Decode(ip)
	return f
}

// ParseFrame reads the link-layer header only.
func ParseFrame(l Link, b []byte) (Frame, Reason) {
	var f Frame
	switch l {
	case LinkRaw:
		if len(b) == 0 {
			return f, ReasonLink
		}
		f.EtherType = EtherIPv4
		if b[0]>>4 == 6 {
			f.EtherType = EtherIPv6
		}
		return f, ReasonNone
	case LinkEthernet:
		if len(b) < 14 {
			return f, ReasonLink
		}
		f.EtherType, f.L3 = be.Uint16(b[12:14]), 14
	case LinkSLL:
		if len(b) < 16 {
			return f, ReasonLink
		}
		f.EtherType, f.L3 = be.Uint16(b[14:16]), 16
		f.Outgoing = be.Uint16(b[0:2]) == 4
	case LinkSLL2:
		if len(b) < 20 {
			return f, ReasonLink
		}
		f.EtherType, f.L3 = be.Uint16(b[0:2]), 20
		f.Outgoing = b[10] == 4
	case LinkNull, LinkLoop:
		if len(b) < 4 {
			return f, ReasonLink
		}
		f.EtherType, f.L3 = loopType(b), 4
		return f, ReasonNone
	default:
		return f, ReasonLink
	}
	return f, f.tags(b)
}

// tags skips VLAN tags: control word, then the next EtherType.
func (f *Frame) tags(b []byte) Reason {
	for f.EtherType == EtherVLAN || f.EtherType == EtherQinQ || f.EtherType == etherQOld {
		if int(f.NumTags) == len(f.Tags) {
			return ReasonVLAN
		}
		t := b[f.L3:]
		if len(t) < 4 {
			return ReasonLink
		}
		f.Tags[f.NumTags] = be.Uint16(t[0:2])
		f.NumTags++
		f.EtherType = be.Uint16(t[2:4])
		f.L3 += 4
	}
	return ReasonNone
}

// loopType returns the EtherType for the address family in a loopback header. The
// family is a small number, so its value shows the byte order. All systems use 2
// for IPv4; IPv6 is 10 on Linux, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS.
func loopType(b []byte) uint16 {
	family := be.Uint32(b[:4])
	if family > 0xffff {
		family = uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	switch family {
	case 2:
		return EtherIPv4
	case 10, 24, 28, 30:
		return EtherIPv6
	}
	return 0
}
