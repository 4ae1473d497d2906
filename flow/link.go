package flow

import "github.com/weirnet/weir/packet"

// A link-local address is valid only on its link, so the key of its flow holds the link. That is
// the interface at whose hook the packet is evaluated, by which it comes in or leaves. The link is
// in the upper half of the link-local addresses: those of fe80::/10, whose 54 bits after the prefix
// are 0 (RFC 4291 2.5.6), and those of 169.254.0.0/16.
//
// IPv6 packets from or to such an address are never forwarded (RFC 4007 9), so one link-local end
// is enough. IPv4 packets are, to the metadata services of clouds at 169.254.169.254. Such a packet
// would have one link when it comes in and another when it leaves. So for IPv4 both ends must be
// link-local.
const (
	linkLocal  = 0xfe80 << 48
	onLink     = 1 << 40 // set beside the link, so that a key with a link never equals one without
	onLinkFour = 1 << 41
	mappedLow  = 0xffffa9fe // 169.254.0.0/16, shifted
)

// LinkLocal reports whether the key of a packet's flow holds a link.
func LinkLocal(p *packet.Packet) bool {
	if p.Version == 6 {
		return p.SrcIP[0] == 0xfe && p.SrcIP[1]>>6 == 2 || p.DstIP[0] == 0xfe && p.DstIP[1]>>6 == 2
	}
	return p.SrcIP[12] == 169 && p.SrcIP[13] == 254 && p.DstIP[12] == 169 && p.DstIP[13] == 254
}

// LinkLocal reports whether the key must hold a link, or holds one.
func (k *Key) LinkLocal() bool {
	return k.LowHi>>54 == linkLocal>>54 || k.HighHi>>54 == linkLocal>>54 ||
		k.LowHi|k.HighHi == 0 && k.LowLo>>16 == mappedLow && k.HighLo>>16 == mappedLow
}

// SetLink puts the link into a key that must hold one and does not yet. It returns false if an
// address of fe80::/10 has bits set where the link goes: such addresses are not in use (RFC 4291
// 2.5.6), and they have no flow.
func (k *Key) SetLink(link uint32) bool {
	if k.LowHi|k.HighHi == 0 {
		k.LowHi = linkLocal | onLinkFour | uint64(link)
		k.HighHi = k.LowHi
		return true
	}
	ok := true
	for _, hi := range []*uint64{&k.LowHi, &k.HighHi} {
		if *hi>>54 == linkLocal>>54 {
			ok = ok && *hi == linkLocal
			*hi |= onLink | uint64(link)
		}
	}
	return ok
}

// offLink returns the upper half of an address without its link.
func offLink(hi uint64) uint64 {
	switch {
	case hi>>48 != linkLocal>>48:
		return hi
	case hi&onLinkFour != 0:
		return 0
	}
	return linkLocal
}

// Link returns the index of the interface that the key holds, 0 if it holds none.
func (k *Key) Link() uint32 {
	for _, hi := range [2]uint64{k.LowHi, k.HighHi} {
		if hi>>48 == linkLocal>>48 {
			return uint32(hi)
		}
	}
	return 0
}
