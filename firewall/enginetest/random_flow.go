package enginetest

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// randomFlow is a flow of two ends that mostly keep to their protocol, so that handshakes, data,
// closes and resets happen, and things that only look like them.
type randomFlow struct {
	proto  packet.Proto
	v6     bool
	ends   [2]flowEnd
	ifs    [2]uint32 // the interface behind which each end is
	server bool      // end 1 is the host: packets from end 0 are evaluated in, the others out
	stage  int
	id     uint16 // ICMP
	asks   int    // ICMP: which of icmpPairs, icmp6Pairs
	last   []byte // the latest packet
	from   int    // who sent it
	whole  bool   // errors quote all of the latest packet
}

type flowEnd struct {
	addr  netip.Addr
	port  uint16
	next  uint32 // TCP: next sequence number
	tag   uint32 // SCTP: the tag that it puts into its packets
	scale uint8
	fin   bool
}

func (g random) randomFlow() *randomFlow {
	t := &randomFlow{v6: g.chance(35), server: g.chance(60), id: uint16(g.IntN(3)), asks: g.IntN(6)}
	t.proto = []packet.Proto{6, 6, 6, 6, 17, 17, 17, 1, 132, 136, 47}[g.IntN(11)]
	if t.proto == packet.ProtoICMP && t.v6 {
		t.proto = packet.ProtoICMPv6
	}
	for i := range t.ends {
		t.ends[i].addr = g.addr(t.v6)
		t.ends[i].port = g.portNumber()
		t.ifs[i] = 1 + g.Uint32N(3)
		if g.chance(5) {
			t.ifs[i] = 300
		}
	}
	return t
}

func (g random) portNumber() uint16 {
	return []uint16{22, 53, 80, 443, 1024, 4000, 40000, 40001}[g.IntN(8)]
}

// craft returns the IP header of a packet from an end.
func (t *randomFlow) craft(g random, from int) craft {
	c := craft{src: t.ends[from].addr, dst: t.ends[1-from].addr, proto: t.proto, ttl: 64,
		id: g.Uint32N(8)}
	if g.chance(10) {
		c.ttl, c.tos = []uint8{1, 2, 255}[g.IntN(3)],
			[]uint8{0x10, 0x08, 0x04, 0x02, 0x1e, 0xb8, 0x03, 0xa0}[g.IntN(8)]
	}
	switch {
	case t.v6 && g.chance(5):
		c.first, c.options = packet.ProtoDestination, []byte{0, 0, 1, 4, 0, 0, 0, 0}
	case !t.v6 && g.chance(5):
		c.options = [][]byte{{7, 3, 4, 0}, {68, 4, 5, 0}, {148, 4, 0, 0}, {131, 3, 4, 0},
			{137, 3, 4, 0}, {7, 3, 4, 1, 68, 4, 5, 0}}[g.IntN(6)]
	case !t.v6 && g.chance(20):
		c.frag = []uint16{0x4000, 0x4000, 0x4000, 0x8000, 0xc000}[g.IntN(5)]
	}
	return c
}

// next returns the next packet of the flow and who sends it.
func (t *randomFlow) next(g random) (b []byte, from int) {
	switch t.proto {
	case packet.ProtoTCP:
		b, from = t.tcp(g)
	case packet.ProtoSCTP:
		b, from = t.sctp(g)
	default:
		from = g.IntN(2)
		if t.stage == 0 || g.chance(30) {
			from = 0
		}
		t.stage++
		c := t.craft(g, from)
		a, z := t.ends[from].port, t.ends[1-from].port
		switch t.proto {
		case packet.ProtoUDP, packet.ProtoUDPLite:
			c.body = udpBody(a, z, g.IntN(40))
		case packet.ProtoICMP:
			c.body = icmpBody(t.message(g, &icmpPairs, from), 0, t.id, nil)
		case packet.ProtoICMPv6:
			c.body = icmpBody(t.message(g, &icmp6Pairs, from), 0, t.id, make([]byte, 16))
			if g.chance(30) {
				c.ttl = 255
			}
		default:
			c.body = make([]byte, 4)
		}
		b = c.bytes()
	}
	t.last, t.from = b, from
	return b, from
}

// Types of ICMP messages that answer each other, and some that only look like it.
var (
	icmpPairs  = [6][2]uint8{{8, 0}, {8, 0}, {13, 14}, {15, 16}, {17, 18}, {10, 9}}
	icmp6Pairs = [6][2]uint8{{128, 129}, {128, 129}, {128, 129}, {139, 140}, {133, 134}, {137, 143}}
)

// message returns the type of the message that an end sends: now and then what the other one
// should, or what belongs elsewhere.
func (t *randomFlow) message(g random, pairs *[6][2]uint8, from int) uint8 {
	switch n := g.IntN(100); {
	case n < 15:
		return pairs[t.asks][1-from]
	case n < 20:
		return pairs[g.IntN(6)][g.IntN(2)]
	}
	return pairs[t.asks][from]
}

// tcp moves the flow by one segment.
func (t *randomFlow) tcp(g random) ([]byte, int) {
	const fin, syn, rst, psh, ack = packet.FlagFIN, packet.FlagSYN, packet.FlagRST, packet.FlagPSH,
		packet.FlagACK
	from := g.IntN(2)
	flags, data := ack, 0
	scale := uint8(0xff)
	switch {
	case t.stage == 0:
		from, flags = 0, syn
		for i := range t.ends {
			e := &t.ends[i]
			e.next, e.fin, e.scale = []uint32{1000, 5000, 0xfffffff0, 77}[g.IntN(4)], false,
				uint8(0xff)
			if g.chance(60) {
				e.scale = uint8(g.IntN(9))
			}
		}
		scale = t.ends[0].scale
	case t.stage == 1:
		from, flags, scale = 1, syn|ack, t.ends[1].scale
		if g.chance(10) {
			flags = rst | ack
		} else if g.chance(8) {
			flags = syn // simultaneous open
		}
	case t.stage == 2 && g.chance(15): // the server has begun again, or made another cookie
		from, flags, scale, t.stage = 1, syn|ack, t.ends[1].scale, 1
		t.ends[1].next = g.Uint32()
	case t.stage == 2:
		from = 0
	default:
		switch n := g.IntN(20); {
		case n < 8:
			flags, data = ack|psh, g.IntN(200)
		case (n < 11 || n < 15 && t.ends[1-from].fin) && !t.ends[from].fin:
			flags |= fin
		case n == 11:
			flags = rst
		case n == 12:
			flags = rst | ack
		}
	}
	if g.chance(5) {
		flags |= packet.FlagURG
	}
	e, p := &t.ends[from], &t.ends[1-from]
	seq, acks, window := e.next, p.next, uint16(g.IntN(2000))
	length := uint32(data)
	if flags&(syn|fin) != 0 {
		length++
	}
	if flags&syn != 0 && g.chance(10) { // data on SYN
		data = 3
		length += 3
	}
	again := t.stage > 0 && t.last != nil && g.chance(6)
	wrong := g.chance(12)
	if wrong {
		switch g.IntN(6) {
		case 0:
			seq += g.Uint32N(3000) - 1500
		case 1:
			acks += g.Uint32N(3000) - 1500
		case 2:
			seq = g.Uint32()
		case 3:
			acks = g.Uint32()
		case 4:
			flags = uint8(g.IntN(256))
		case 5: // a new connection on the same ports
			t.stage = 0
			return t.tcp(g)
		}
	} else if !again {
		e.next += length
		e.fin = e.fin || flags&fin != 0
		if t.stage < 3 && flags&rst == 0 {
			t.stage++
		}
	}
	if again {
		return t.last, t.from
	}
	c := t.craft(g, from)
	if flags&ack == 0 {
		acks = 0
	}
	c.body = tcpBody(e.port, p.port, seq, acks, flags, window, scale, data)
	return c.bytes(), from
}

// sctp moves an association by one packet.
func (t *randomFlow) sctp(g random) ([]byte, int) {
	shake := []struct {
		from  int
		chunk uint8
	}{{0, 1}, {1, 2}, {0, 10}, {1, 11}}
	from, chunk, bits := g.IntN(2), uint8(0), uint8(0)
	if t.stage < len(shake) {
		from, chunk = shake[t.stage].from, shake[t.stage].chunk
		if t.stage == 0 {
			t.ends[0].tag, t.ends[1].tag = 70+g.Uint32N(3), 80+g.Uint32N(3)
		}
		t.stage++
	} else {
		chunk = []uint8{0, 0, 0, 3, 4, 1, 6, 14}[g.IntN(8)]
		bits = uint8(g.IntN(2))
		if g.chance(5) {
			t.stage = 0
		}
	}
	tag := t.ends[from].tag
	if chunk == 1 {
		tag = 0
	}
	if g.chance(10) {
		tag = t.ends[1-from].tag
	}
	c := t.craft(g, from)
	c.body = sctpBody(t.ends[from].port, t.ends[1-from].port, tag, chunk, bits)
	if (chunk == 1 || chunk == 2) && g.chance(90) {
		asks := t.ends[1-from].tag
		if g.chance(20) {
			asks = []uint32{0, 70, 80, 90}[g.IntN(4)]
		}
		c.body = sctpInit(t.ends[from].port, t.ends[1-from].port, tag, chunk, asks)
	}
	return c.bytes(), from
}

// hook returns where a packet from an end is evaluated.
func (t *randomFlow) hook(g random, from int) firewall.Hook {
	in := firewall.Hook{Dir: firewall.In, Recv: t.ifs[from]}
	out := firewall.Hook{Dir: firewall.Out, Recv: t.ifs[from], Xmit: t.ifs[1-from]}
	if t.server {
		out.Recv = 0
	}
	if g.chance(8) {
		return firewall.Hook{Dir: firewall.Direction(g.IntN(2)), Recv: g.Uint32N(4),
			Xmit: g.Uint32N(4)}
	}
	if t.server && from == 1 || !t.server && g.chance(50) {
		return out
	}
	return in
}

// wrongPacket returns an ICMP error about the latest packet of the flow, mostly from its receiver
// or a router to its sender.
func (t *randomFlow) wrongPacket(g random) ([]byte, int) {
	quote := append([]byte(nil), t.last...)
	if n := 28 + g.IntN(60); n < len(quote) && !t.whole {
		quote = quote[:n]
	}
	if g.chance(15) && len(quote) > 30 {
		quote[g.IntN(len(quote))] ^= 1 << g.IntN(8)
	}
	from := 1 - t.from
	if g.chance(10) {
		from = t.from
	}
	c := t.craft(g, from)
	c.proto = packet.ProtoICMP
	c.body = icmpBody([]uint8{3, 4, 5, 11, 12}[g.IntN(5)], uint8(g.IntN(5)), 0, quote)
	if t.v6 {
		c.proto = packet.ProtoICMPv6
		c.body = icmpBody(uint8(1+g.IntN(4)), 0, 0, quote)
	}
	if g.chance(20) { // a router in between
		c.src = g.addr(t.v6)
	}
	switch n := g.IntN(100); {
	case n < 20: // to another than who sent what it quotes
		c.dst = g.addr(t.v6)
	case n < 25: // about what its destination would have sent, had it been part of the flow
		c.dst = g.addr(t.v6)
		requote(c.body[8:], c.dst)
	}
	return c.bytes(), from
}

// requote gives a quoted packet another source.
func requote(quote []byte, src netip.Addr) {
	switch {
	case src.Is4() && len(quote) >= 20:
		copy(quote[12:16], src.AsSlice())
	case src.Is6() && len(quote) >= 40:
		copy(quote[8:24], src.AsSlice())
	}
}

// fragment returns a fragment of a datagram of the flow, which may be the first, a later
// one, or one that overlaps.
func (t *randomFlow) fragment(g random) ([]byte, int) {
	from := g.IntN(2)
	c := craft{src: t.ends[from].addr, dst: t.ends[1-from].addr, proto: t.proto, ttl: 64, id: 100 +
		g.Uint32N(3), isFrag: true}
	if t.v6 && g.chance(25) {
		c.first, c.options = packet.ProtoDestination, []byte{0, 0, 1, 4, 0, 0, 0, 0}
	}
	off := uint16([]int{0, 0, 24, 48, 48, 16, 8}[g.IntN(7)])
	more := off == 0 || g.chance(50)
	body := udpBody(t.ends[from].port, t.ends[1-from].port, 40)
	if t.proto == packet.ProtoTCP {
		body = tcpBody(t.ends[from].port, t.ends[1-from].port, 1000, 0, packet.FlagSYN, 100,
			0xff, 28)
	}
	binary.BigEndian.PutUint16(body[4:], 200)
	// a header between the fragment header and the transport header
	if off == 0 && t.v6 && g.chance(20) {
		body = append([]byte{byte(t.proto), 0, 1, 4, 0, 0, 0, 0}, body...)
		c.proto = packet.ProtoDestination
	}
	c.body = body[:min(len(body), []int{48, 24, 48, 16}[g.IntN(4)])]
	if t.v6 {
		c.frag = off
		if more {
			c.frag |= 1
		}
	} else {
		c.frag = off / 8
		if more {
			c.frag |= 0x2000
		}
	}
	return c.bytes(), from
}
