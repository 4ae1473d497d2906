package flow

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// Key names a conversation in canonical order, so that packets of both directions have the same Key. It is comparable and
// has the layout that the kernel engine uses: 40 bytes, no padding.
//
// The end with the smaller (address, port) is the low end. IPv4 addresses are v4-mapped (::ffff:a.b.c.d).
type Key struct {
	LowHi, LowLo   uint64 // address of the low end
	HighHi, HighLo uint64 // address of the high end
	Ports          uint32 // port of the low end << 16 | port of the high end
	Proto          uint8
	Flow           uint8 // flow id of the Program (0: "default")
	_              uint16
}

// Dir says which end of a Key sent a packet.
type Dir uint8

// FromLow: the packet went from the low end to the high end. When both ends are the same, every packet is FromLow.
const (
	FromLow Dir = iota
	FromHigh
)

// KeyOf returns the key of the conversation that p belongs to, and which end sent p. b are the bytes that p was decoded
// from; only ICMP errors are read again.
//
// The ports are those of TCP, UDP, UDP-Lite and SCTP; of an ICMP message with an identifier both are the identifier; of
// everything else both are 0. An ICMP error has the key of the packet that it quotes and goes the other way.
//
// ok is false when p has no conversation: malformed, a later fragment, or an error whose quote cannot be read or is itself
// an ICMP error.
func KeyOf(p *packet.Packet, b []byte) (k Key, d Dir, ok bool) {
	if p.Reason != packet.ReasonNone || p.Frag&packet.FragLater != 0 {
		return Key{}, FromLow, false
	}
	ports := p.Ports
	if p.Proto == packet.ProtoICMP || p.Proto == packet.ProtoICMPv6 {
		if p.ICMPError() {
			k, d, _, ok = QuotedKey(p, b)
			return k, d ^ 1, ok
		}
		ports = icmpPorts(p)
	}
	k, d = canonical(p, ports)
	return k, d, true
}

// QuotedKey returns the key of the packet that the ICMP error p quotes, which end sent that packet, and the packet itself
// (see packet.Packet.Inner for its fields). ok is false when p is no error, or the quote names no conversation.
func QuotedKey(p *packet.Packet, b []byte) (k Key, d Dir, inner packet.Packet, ok bool) {
	inner, ok = p.Inner(b)
	if !ok || inner.ICMPError() {
		return Key{}, FromLow, packet.Packet{}, false
	}
	ports := inner.Ports
	if inner.IsICMP() {
		ports = icmpPorts(&inner)
	}
	k, d = canonical(&inner, ports)
	return k, d, inner, true
}

// icmpPorts returns the identifier of an ICMP query as both ports, 0 for any other message.
func icmpPorts(p *packet.Packet) uint32 {
	if query, _ := p.ICMPQuery(); !query {
		return 0
	}
	id := uint32(p.ICMPID())
	return id<<16 | id
}

// canonical orders the ends of p. ports is source << 16 | destination.
func canonical(p *packet.Packet, ports uint32) (Key, Dir) {
	srcHi, srcLo := p.SrcWords()
	dstHi, dstLo := p.DstWords()
	return order(Key{LowHi: srcHi, LowLo: srcLo, HighHi: dstHi, HighLo: dstLo, Ports: ports, Proto: p.Proto})
}

// order brings the ends of a key from source to destination into order.
func order(k Key) (Key, Dir) {
	swap := k.LowLo > k.HighLo
	if k.LowHi != k.HighHi {
		swap = k.LowHi > k.HighHi
	} else if k.LowLo == k.HighLo {
		swap = k.Ports>>16 > k.Ports&0xffff
	}
	if !swap {
		return k, FromLow
	}
	k.LowHi, k.LowLo, k.HighHi, k.HighLo = k.HighHi, k.HighLo, k.LowHi, k.LowLo
	k.Ports = k.Ports<<16 | k.Ports>>16
	return k, FromHigh
}

// KeyFor returns the key of a conversation between two ends, and which of them from is. For ICMP queries the port of both
// ends is the identifier.
func KeyFor(proto uint8, from, to netip.AddrPort) (Key, Dir) {
	k := Key{Ports: uint32(from.Port())<<16 | uint32(to.Port()), Proto: proto}
	k.LowHi, k.LowLo = packet.Words(from.Addr())
	k.HighHi, k.HighLo = packet.Words(to.Addr())
	return order(k)
}

// Low and High return the ends of the key. IPv4 ends are plain IPv4 addresses.
func (k *Key) Low() netip.AddrPort {
	return netip.AddrPortFrom(addr(k.LowHi, k.LowLo), uint16(k.Ports>>16))
}

// High returns the end with the larger (address, port).
func (k *Key) High() netip.AddrPort {
	return netip.AddrPortFrom(addr(k.HighHi, k.HighLo), uint16(k.Ports))
}

// Ends returns the end that sends packets of direction d, and the other one.
func (k *Key) Ends(d Dir) (from, to netip.AddrPort) {
	if d == FromLow {
		return k.Low(), k.High()
	}
	return k.High(), k.Low()
}

// addr makes an address from two words.
func addr(hi, lo uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b).Unmap()
}
