package enginetest

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// rare says that a case has rules and packets that the others do not have. These are conditions on
// any value of a field, chains of IPv6 extension headers, options of TCP, protocols without ports,
// and errors about fragments. The cases of `found` are without them, so they are as they were.
func rare(seed uint64) bool { return seed%5 == 1 || seed%5 == 2 }

// rareHeaders returns a packet with headers put between those that it has. It may change the
// protocol.
func (g random) rareHeaders(b []byte) []byte {
	var p packet.Packet
	p.Decode(b)
	if p.Reason != packet.ReasonNone {
		return b
	}
	b = append([]byte(nil), b...)
	whole := p.Frag&(packet.FragFirst|packet.FragLater) == 0
	syn := p.Proto == packet.ProtoTCP && p.TCPFlags&packet.FlagSYN != 0
	if whole && (g.chance(25) || syn) {
		b = g.rareTransport(b, &p)
	}
	if p.Version == 6 && p.ExtHdrs&^packet.ExtFragment == 0 && g.chance(60) {
		return g.chain(b)
	}
	if p.Version == 4 && b[0] == 0x45 && g.chance(30) {
		return insert(b, 20, g.options4(), func(b []byte, n int) { b[0] += byte(n / 4) })
	}
	return b
}

// insert puts bytes into a packet at an offset, adapts the length in the IP header, and lets fix
// do the same to another header.
func insert(b []byte, at int, what []byte, fix func(b []byte, n int)) []byte {
	out := append(append(append([]byte(nil), b[:at]...), what...), b[at:]...)
	fix(out, len(what))
	return lengthen(out)
}

// options4 returns options of IPv4, mostly whole.
func (g random) options4() []byte {
	var o []byte
	for range 1 + g.IntN(4) {
		o = append(o, [][]byte{{1}, {1, 1, 1}, {7, 3, 4}, {68, 4, 5, 0}, {148, 4, 0, 0},
			{131, 3, 4}, {137, 3, 4}, {130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {94, 2},
			{0}}[g.IntN(10)]...)
	}
	if g.chance(10) {
		o = append(o, 7, uint8(g.IntN(6)))
	}
	for len(o)%4 != 0 {
		o = append(o, 0)
	}
	return o[:min(len(o), 40)]
}

// chain puts extension headers behind the IPv6 header, mostly in an order that is valid.
func (g random) chain(b []byte) []byte {
	next := b[6]
	var chain []byte
	types := []uint8{packet.ProtoHopByHop, packet.ProtoDestination, packet.ProtoRouting,
		packet.ProtoAH, packet.ProtoFragment, packet.ProtoDestination, packet.ProtoRouting}
	first := g.IntN(len(types))
	types = types[first : first+1+g.IntN(len(types)-first)]
	for g.chance(10) {
		types = append(types[:len(types):len(types)], []uint8{packet.ProtoHopByHop,
			packet.ProtoFragment, packet.ProtoAH}[g.IntN(3)])
	}
	for i, typ := range types {
		after := next
		if i+1 < len(types) {
			after = types[i+1]
		}
		chain = append(chain, g.extension(typ, after)...)
	}
	b[6] = types[0]
	return insert(b, 40, chain, func([]byte, int) {})
}

// extension returns an extension header.
func (g random) extension(typ, next uint8) []byte {
	switch typ {
	case packet.ProtoFragment: // of a datagram in one piece
		return []byte{next, uint8(g.IntN(2)), 0, uint8(g.IntN(4) << 1), 0, 0, 0, uint8(g.IntN(3))}
	case packet.ProtoAH:
		words := g.IntN(4)
		return append([]byte{next, uint8(words)}, make([]byte, 4*(words+2)-2)...)
	case packet.ProtoRouting:
		words := g.IntN(3)
		return append([]byte{next, uint8(words), uint8(g.IntN(5)), uint8(g.IntN(2))},
			make([]byte, 8*words+4)...)
	}
	return [][]byte{{next, 0, 1, 4, 0, 0, 0, 0}, {next, 0, 5, 2, 0, 0, 1, 0},
		{next, 0, 0, 0, 0, 0, 0, 0}, {next, 0, 0, 5, 2, 0, 0, 0}, {next, 0, 1, 1, 0, 1, 0, 0},
		{next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {next, 0, 0x3e, 4, 0, 0, 0, 0},
		{next, 0, 1, 5, 0, 0, 0, 0}}[g.IntN(8)]
}

// rareTransport changes the header behind the IP header.
func (g random) rareTransport(b []byte, p *packet.Packet) []byte {
	at := int(p.L4)
	if g.chance(10) && p.ExtHdrs == 0 { // what follows is another protocol's
		proto := []uint8{0, 1, 2, 4, 41, 43, 44, 50, 51, 58, 59, 60, 89, 135, 253, 255}[g.IntN(16)]
		if p.Version == 4 {
			b[9] = proto
		} else {
			b[6] = proto
		}
		return b
	}
	if p.HasPorts() && g.chance(10) {
		clear(b[at+2*g.IntN(2):][:2]) // port 0
	}
	switch p.Proto {
	case packet.ProtoTCP:
		if g.chance(20) {
			b[at+12] |= uint8(g.IntN(16)) // reserved bits
			b[at+13] |= uint8(g.IntN(4) << 6)
			return b
		}
		if p.TCPFlags&packet.FlagSYN == 0 { // just inside or outside of what windows reach
			binary.BigEndian.PutUint32(b[at+4:], p.Seq+1<<g.IntN(31))
			return b
		}
		if b[at+12]>>4 != 5 {
			return b
		}
		return insert(b, at+20, g.tcpOptions(), func(b []byte, n int) {
			b[at+12] += uint8(n/4) << 4
		})
	case packet.ProtoUDP, packet.ProtoUDPLite: // the length covers a part
		binary.BigEndian.PutUint16(b[at+4:], uint16(8+g.IntN(len(b)-at-7)))
	case packet.ProtoSCTP:
		switch g.IntN(3) {
		case 0: // no whole chunk
			return lengthen(b[:at+12+g.IntN(len(b)-at-11)])
		case 1: // another chunk behind
			return lengthen(append(b, uint8(g.IntN(15)), uint8(g.IntN(2)), 0, 4))
		}
		b[at+12] = uint8(g.IntN(256))
	case packet.ProtoICMP, packet.ProtoICMPv6:
		switch g.IntN(3) {
		case 0:
			return lengthen(b[:at+g.IntN(len(b)-at)])
		case 1:
			b[at+1] = uint8(g.IntN(16))
		default:
			b = lengthen(append(b, make([]byte, g.IntN(60))...))
			if quote := b[at+8:]; p.Version == 6 && p.ICMPError() && len(quote) >= 40 {
				mapped := netip.MustParseAddr("::ffff:10.0.0.2").As16()
				copy(quote[8+16*g.IntN(2):], mapped[:])
			}
		}
	}
	return b
}

// tcpOptions returns options of TCP in orders that systems use, and in others.
func (g random) tcpOptions() []byte {
	scale := []byte{3, 3, uint8(g.IntN(18))}
	mss := []byte{2, 4, 5, 180}
	stamps := []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 0}
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		for len(all)%4 != 0 {
			all = append(all, 0)
		}
		return all
	}
	nop, sack := []byte{1}, []byte{4, 2}
	switch g.IntN(8) {
	case 0: // Linux
		return join(mss, sack, stamps, nop, scale)
	case 1: // macOS, Windows
		return join(mss, nop, scale, nop, nop, stamps, sack)
	case 2:
		return join(mss, nop, nop, sack, nop, scale)
	case 3:
		return join(mss)
	case 4: // the first one counts
		return join(scale, scale, []byte{3, 3, 1})
	}
	var parts [][]byte
	for range 1 + g.IntN(5) {
		parts = append(parts, [][]byte{scale, mss, stamps, nop, sack, {0}, {3, 2}, {3, 4, 1, 1},
			{3, 3}, {2, 0}, {8, 1}, {2, 40}, {254, 4, 3, 3}, {2, 4}}[g.IntN(14)])
	}
	all := join(parts...)
	return all[:min(len(all), 40)]
}

// rarePacket returns a packet that belongs to a flow, or looks like it: an error about a fragment
// or about an error, neighbour discovery with other headers.
func (t *randomFlow) rarePacket(g random) ([]byte, int) {
	if t.v6 && g.chance(30) {
		b := g.essential()
		if g.chance(40) {
			src := netip.MustParseAddr(g.one("::", "2001:db8::2", "fe80::1", "fe80:0:1::2",
				"febf::1", "fec0::1")).As16()
			copy(b[8:], src[:])
		}
		if g.chance(20) && b[6] == uint8(packet.ProtoICMPv6) {
			b[41] = 1
		}
		if g.chance(30) {
			b = g.chain(b)
		}
		return b, 0
	}
	last, from := t.last, t.from
	switch g.IntN(4) {
	case 0:
		t.last, t.from = t.fragment(g)
	case 1:
		if t.last != nil {
			t.last, t.from = t.wrongPacket(g)
		}
	case 2: // what decoders refuse, which may name a flow in a quote
		if b := g.malformed(); len(b) > 0 && b[0]>>4 == 6 == t.v6 {
			t.last, t.whole = b, g.chance(50)
		}
	}
	if t.last == nil {
		b, from := t.fragment(g)
		return g.rareHeaders(b), from
	}
	b, who := t.wrongPacket(g)
	t.last, t.from, t.whole = last, from, false
	return b, who
}
