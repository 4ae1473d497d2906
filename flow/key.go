package flow

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// Key identifies a flow. Its ends are in canonical order, so packets of both directions have the
// same Key. It is comparable and has the layout that the kernel engine uses: 40 bytes, no padding.
//
// The end with the smaller (address, port) is the low end. IPv4 addresses are v4-mapped
// (::ffff:a.b.c.d); link-local ones contain their link, see link.go.
type Key struct {
	LowHi, LowLo   uint64 // address of the low end
	HighHi, HighLo uint64 // address of the high end
	Ports          uint32 // port of the low end << 16 | port of the high end
	Proto          packet.Proto
	Flow           uint8 // flow id of the Program (0: "default")
	_              uint16
}

// End is one of the two ends of a Key, usually the one that sent a packet.
type End uint8

// The ends. When both are the same, every packet is from the low end.
const (
	EndLow End = iota
	EndHigh
)

// Dir returns the direction of a packet that e sent, in a flow that the end made began.
func (e End) Dir(made End) Dir { return Dir(e ^ made) }

// Dir is the direction of a packet in its flow. It is the index of the sender's side in
// State.Sides.
type Dir uint8

// The directions: that of the first packet, and the other one.
const (
	DirOriginal Dir = iota
	DirReply
)

// Reverse returns the other direction.
func (d Dir) Reverse() Dir { return d ^ 1 }

// KeyOf returns the key of the flow that p belongs to, and the end that sent p. b holds the bytes
// that p was decoded from; of ICMP errors the quote is read from it. link is the index of the
// interface at which p is evaluated.
//
// The ports are those of TCP, UDP, UDP-Lite and SCTP. ICMP queries and their answers have those of
// icmpPorts, other protocols 0. An ICMP error has the key of the packet that it quotes, and the
// opposite direction.
//
// ok is false when p has no flow. That is so if p is malformed, a later fragment, or an ICMP
// message that is neither query nor answer. It is so too for an error that QuotedKey refuses, and
// for an address that Key.SetLink refuses.
func KeyOf(p *packet.Packet, b []byte, link uint32) (k Key, d End, ok bool) {
	if p.Reason != packet.ReasonNone || p.Frag&packet.FragLater != 0 {
		return Key{}, EndLow, false
	}
	if p.Proto <= packet.ProtoICMPv6 && p.ICMPError() {
		k, d, _, ok = QuotedKey(p, b, link)
		return k, d ^ 1, ok
	}
	return keyOf(p, link)
}

// QuotedKey returns the key of the packet that the ICMP error p quotes, which end sent that packet,
// and the packet itself (see packet.Packet.Inner for its fields). ok is false when p is not an
// error, when the quote names no flow, and when the quoted packet did not come from the destination
// of p. An error goes to the sender of the packet that it is about (RFC 792, RFC 4443 2.4). One
// that goes elsewhere would reach a host that the flow's rule protects (CVE-2019-5598).
func QuotedKey(p *packet.Packet, b []byte, link uint32) (k Key, d End, inner packet.Packet,
	ok bool) {
	inner, ok = p.Inner(b)
	if !ok || inner.ICMPError() || inner.SrcIP != p.DstIP {
		return Key{}, EndLow, packet.Packet{}, false
	}
	if k, d, ok = keyOf(&inner, link); !ok {
		return Key{}, EndLow, packet.Packet{}, false
	}
	return k, d, inner, true
}

// keyOf returns the key of a packet that is not an ICMP error.
func keyOf(p *packet.Packet, link uint32) (k Key, d End, ok bool) {
	ports := p.Ports
	if p.Proto <= packet.ProtoICMPv6 && p.IsICMP() {
		if ports = icmpPorts(p); ports == 0 {
			return Key{}, EndLow, false
		}
	}
	srcHi, srcLo := p.SrcWords()
	dstHi, dstLo := p.DstWords()
	k, d = order(Key{LowHi: srcHi, LowLo: srcLo, HighHi: dstHi, HighLo: dstLo, Ports: ports,
		Proto: p.Proto})
	return k, d, !LinkLocal(p) || k.SetLink(link)
}

// icmpPorts returns the values that replace the ports of an ICMP query or its answer. That of the
// end that asks is the identifier. That of the end that answers is the identifier plus the type of
// the query, modulo 2^16. So the key holds the direction and the type of the query. The keys of two
// queries never collide: for that, two types would have to add up to 0. It returns 0 for other
// messages.
func icmpPorts(p *packet.Packet) uint32 {
	query, answer := p.ICMPQueryType()
	if query == 0 {
		return 0
	}
	asks := p.ICMPID()
	answers := asks + uint16(query)
	if answer {
		return uint32(answers)<<16 | uint32(asks)
	}
	return uint32(asks)<<16 | uint32(answers)
}

// order swaps the ends of a key, given as source and destination, into canonical order.
func order(k Key) (Key, End) {
	swap := k.LowLo > k.HighLo
	if k.LowHi != k.HighHi {
		swap = k.LowHi > k.HighHi
	} else if k.LowLo == k.HighLo {
		swap = k.Ports>>16 > k.Ports&0xffff
	}
	if !swap {
		return k, EndLow
	}
	k.LowHi, k.LowLo, k.HighHi, k.HighLo = k.HighHi, k.HighLo, k.LowHi, k.LowLo
	k.Ports = k.Ports<<16 | k.Ports>>16
	return k, EndHigh
}

// KeyBetween returns the key of a flow between two ends, evaluated at the interface link, and which
// End from is. An ICMP flow is an echo: from sends the request, and its port is the identifier.
func KeyBetween(proto packet.Proto, from, to netip.AddrPort, link uint32) (Key, End) {
	port := to.Port()
	switch proto {
	case packet.ProtoICMP:
		port = from.Port() + 8
	case packet.ProtoICMPv6:
		port = from.Port() + 128
	}
	k := Key{Ports: uint32(from.Port())<<16 | uint32(port), Proto: proto}
	k.LowHi, k.LowLo = packet.AddrWords(from.Addr())
	k.HighHi, k.HighLo = packet.AddrWords(to.Addr())
	k, d := order(k)
	if k.LinkLocal() {
		k.SetLink(link)
	}
	return k, d
}

// Low returns the end with the smaller (address, port). IPv4 addresses are not mapped.
func (k *Key) Low() netip.AddrPort {
	return netip.AddrPortFrom(addr(k.LowHi, k.LowLo), uint16(k.Ports>>16))
}

// High returns the end with the larger (address, port). IPv4 addresses are not mapped.
func (k *Key) High() netip.AddrPort {
	return netip.AddrPortFrom(addr(k.HighHi, k.HighLo), uint16(k.Ports))
}

// DisplayEnds returns the ends as output shows them: from is the one that made the state. Both ends
// of an ICMP query have its identifier as port.
func (k *Key) DisplayEnds(made End) (from, to netip.AddrPort) {
	from, to = k.Ends(made)
	if k.Proto == packet.ProtoICMP || k.Proto == packet.ProtoICMPv6 {
		to = netip.AddrPortFrom(to.Addr(), from.Port())
	}
	return from, to
}

// ICMPQueryType returns the type of the ICMP query that the end made sends, 0 for other protocols.
func (k *Key) ICMPQueryType(made End) uint8 {
	if k.Proto != packet.ProtoICMP && k.Proto != packet.ProtoICMPv6 {
		return 0
	}
	from, to := k.Ends(made)
	return uint8(to.Port() - from.Port())
}

// Ends returns the address and port of sender, and those of the other end.
func (k *Key) Ends(sender End) (from, to netip.AddrPort) {
	if sender == EndLow {
		return k.Low(), k.High()
	}
	return k.High(), k.Low()
}

// addr makes an address from two words of a key, without its link.
func addr(hi, lo uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], offLink(hi))
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b).Unmap()
}
