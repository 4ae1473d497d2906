package netfilter

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/netfilter"
	"github.com/weirnet/weir/rule/op"
)

// kind is how far the promise goes for a packet.
type kind uint8

const (
	exact kind = iota
	// stray is a TCP segment of no known flow in mid-stream. Weir may refuse more of them:
	// netfilter takes some for new flows.
	stray
)

// sent is one random packet.
type sent struct {
	kind kind
	what string
	from *device // nil: from the host
	pkt  []byte
	flow *flowState
}

// flowState is a flow whose first packet passed.
type flowState struct {
	proto    packet.Proto
	a, b     netip.AddrPort
	fromA    *device // where A's packets come from, nil for the host
	fromB    *device
	step     int
	seq, ack uint32 // next numbers of A and B
	last     []byte // the last packet, from A if lastA
	lastA    bool
}

// generator makes packets for a rule set: its addresses, ports and protocols come up often.
type generator struct {
	*rand.Rand
	devices []device
	nets    []netip.Prefix
	ports   []rule.Range
	types   [2][]rule.Range
	protos  []packet.Proto
	flows   []*flowState
	used    map[[2]netip.AddrPort]bool
	id      uint16
	v4, v6  bool
	rare    bool // also packets that few senders send; not for the seeds of found
}

func newGenerator(seed uint64, devices []device,
	result *netfilter.Result) *generator {
	set := result.Rules
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 19)), devices: devices,
		used: map[[2]netip.AddrPort]bool{}, v4: result.IPv4, v6: result.IPv6,
		rare: !slices.Contains(found, seed)}
	g.nets = prefixes("198.51.100.0/24 203.0.113.0/24 2001:db8:f::/48")
	g.ports = []rule.Range{{Lo: 1, Hi: 65535}, {Lo: 22, Hi: 22}, {Lo: 80, Hi: 80}}
	for _, d := range devices {
		g.nets = append(g.nets, d.networks...)
	}
	for _, r := range set.Rules {
		for _, c := range r.Clauses() {
			for _, t := range c {
				g.learn(&t)
			}
		}
	}
	for _, t := range set.Tables {
		for _, e := range t.Entries() {
			g.nets = append(g.nets, e.Prefix)
		}
	}
	return g
}

func (g *generator) learn(t *rule.Test) {
	switch t.Op {
	case op.CondSrcPort, op.CondDstPort:
		g.ports = append(g.ports, t.Ranges...)
	case op.CondICMPType:
		g.types[0] = append(g.types[0], t.Ranges...)
	case op.CondICMP6Type:
		g.types[1] = append(g.types[1], t.Ranges...)
	case op.CondProto:
		g.protos = append(g.protos, packet.Proto(t.A))
	}
	for _, p := range t.Prefixes {
		if usable(p.Masked().Addr(), false) {
			g.nets = append(g.nets, p)
		}
	}
}

// usable reports whether the kernel's routing takes an address at all: what it drops meets no
// chain.
func usable(a netip.Addr, dst bool) bool {
	switch b := a.AsSlice(); {
	case a.IsUnspecified(), a.IsLoopback(), a.Is4() && (b[0] == 0 || b[0] == 127 || b[0] >= 240):
		return false
	case a.IsMulticast(), a.IsLinkLocalUnicast():
		return false
	}
	return !dst || a.IsValid()
}

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// address returns a random address of a family, often of a network that the rules name.
func (g *generator) address(v6 bool) netip.Addr {
	for {
		p := pick(g, g.nets)
		if p.Addr().Is6() != v6 {
			continue
		}
		b := p.Masked().Addr().AsSlice()
		for bit := p.Bits(); bit < len(b)*8; bit++ {
			if g.IntN(2) == 1 {
				b[bit/8] |= 0x80 >> (bit % 8)
			}
		}
		if a, _ := netip.AddrFromSlice(b); usable(a, true) {
			return a
		}
	}
}

func (g *generator) inRanges(all []rule.Range, most uint32) uint32 {
	r := pick(g, all)
	n := r.Lo + g.Uint32N(r.Hi-r.Lo+1)
	switch g.IntN(8) {
	case 0:
		n = r.Lo - 1
	case 1:
		n = r.Hi + 1
	case 2:
		n = r.Lo
	case 3:
		n = r.Hi
	}
	return n % (most + 1)
}

func (g *generator) port() uint16 { return uint16(max(1, g.inRanges(g.ports, 65535))) }

// local returns an address at which the host takes packets.
func (g *generator) local(v6 bool) netip.Addr {
	for {
		if p := pick(g, localRoutes); g.IntN(8) == 0 && p.Addr().Is6() == v6 {
			return p.Addr().Next()
		}
		if a := pick(g, pick(g, g.devices).networks).Addr(); a.Is6() == v6 {
			return a
		}
	}
}

func (g *generator) isLocal(a netip.Addr) bool {
	for _, d := range g.devices {
		for _, n := range d.networks {
			if n.Addr() == a {
				return true
			}
		}
	}
	return slices.ContainsFunc(localRoutes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isBroadcast reports whether a is the first or last address of a network of the host.
func (g *generator) isBroadcast(a netip.Addr) bool {
	for _, d := range g.devices {
		for _, n := range d.networks {
			if a == n.Masked().Addr() || a.Is4() && a == lastOf(n) {
				return true
			}
		}
	}
	return a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// remote returns an address of another host.
func (g *generator) remote(v6 bool) netip.Addr {
	for {
		if a := g.address(v6); !g.isLocal(a) && !g.isBroadcast(a) {
			return a
		}
	}
}

// route returns the device through which an address is reached.
func (g *generator) route(a netip.Addr) *device {
	for i := range g.devices {
		for _, n := range g.devices[i].networks {
			if n.Contains(a) {
				return &g.devices[i]
			}
		}
	}
	return &g.devices[0]
}

// next returns the next packet: the first of a flow, a later one, or one of no flow.
func (g *generator) next() sent {
	switch n := g.IntN(100); {
	case n < 40 && len(g.flows) > 0:
		return g.later(pick(g, g.flows))
	case n < 50:
		return g.stray()
	}
	return g.first()
}

// first returns the first packet of a new flow.
func (g *generator) first() sent {
	f := &flowState{proto: g.proto(), seq: g.Uint32(), ack: g.Uint32()}
	v6 := !g.v4 || g.v6 && g.IntN(3) == 0
	for {
		f.a, f.b = g.ends(f, v6)
		key := [2]netip.AddrPort{f.a, f.b}
		if dhcp[[2]uint16{f.a.Port(), f.b.Port()}] {
			continue
		}
		if !g.used[key] && !g.used[[2]netip.AddrPort{f.b, f.a}] {
			g.used[key] = true
			break
		}
	}
	s := sent{what: "first", from: f.fromA, flow: f}
	s.pkt = g.build(f, true)
	if t := icmpType(s.pkt); f.proto == packet.ProtoICMP && !queries[0][t] ||
		f.proto == packet.ProtoICMPv6 && !queries[1][t] {
		s.what, s.flow = "ICMP of no flow", nil
	}
	return s
}

// dhcp are the ports of the DHCP clients, whose packets pass before the rules.
var dhcp = map[[2]uint16]bool{{67, 68}: true, {68, 67}: true, {546, 547}: true, {547, 546}: true}

// ends chooses the ends of a flow: to the host, from it, or through it.
func (g *generator) ends(f *flowState, v6 bool) (a, b netip.AddrPort) {
	src, dst := g.remote(v6), g.local(v6)
	f.fromA, f.fromB = &g.devices[g.IntN(len(g.devices))], nil
	switch g.IntN(10) {
	case 0, 1, 2: // from the host
		src, dst = dst, src
		f.fromA, f.fromB = nil, g.route(dst)
	case 3, 4, 5: // through it
		for dst = g.remote(v6); dst == src; dst = g.remote(v6) {
		}
		f.fromB = g.route(dst)
	case 6: // groups
		if f.proto == packet.ProtoUDP || f.proto == packet.ProtoICMP {
			dst = g.group(v6)
		}
	}
	a, b = netip.AddrPortFrom(src, g.port()), netip.AddrPortFrom(dst, g.port())
	if f.proto == packet.ProtoICMP { // the id is the port of a
		b = netip.AddrPortFrom(dst, 0)
	}
	return a, b
}

func (g *generator) group(v6 bool) netip.Addr {
	if v6 { // or the address that routers have, too
		return pick(g, []netip.Addr{netip.MustParseAddr("ff02::1"),
			topology[0].networks[1].Masked().Addr(), topology[1].networks[1].Masked().Addr()})
	}
	return pick(g, []netip.Addr{netip.MustParseAddr("224.0.0.1"), lastOf(topology[0].networks[0]),
		netip.MustParseAddr("255.255.255.255")})
}

func (g *generator) proto() packet.Proto {
	switch n := g.IntN(20); {
	case n < 10:
		return packet.ProtoTCP
	case n < 15:
		return packet.ProtoUDP
	case n < 18:
		return packet.ProtoICMP // or ICMPv6
	case len(g.protos) > 0:
		if p := pick(g, g.protos); p != packet.ProtoSCTP && p != 33 && p != packet.ProtoUDPLite &&
			p != packet.ProtoAH && p > 2 && p != 41 && p != 4 && p != packet.ProtoGRE {
			return p
		}
	}
	return packet.ProtoUDP
}

var queries = [2]map[uint8]bool{{8: true, 13: true, 15: true, 17: true}, {128: true, 139: true}}

// answerTo returns the type of the answer to a query, and the other way round.
func answerTo(kind uint8) uint8 {
	switch kind {
	case 8:
		return 0
	case 0:
		return 8
	case 13, 15, 17, 128, 139:
		return kind + 1
	}
	return kind - 1
}

func icmpType(pkt []byte) uint8 {
	if pkt[0]>>4 == 4 {
		return pkt[20]
	}
	return pkt[40]
}

// later returns a packet of a known flow that is in order.
func (g *generator) later(f *flowState) sent {
	if f.last != nil && g.IntN(6) == 0 {
		return g.icmpError(f)
	}
	fromA := f.step%2 == 0
	s := sent{what: "later", from: f.fromA, flow: f}
	if !fromA {
		s.from = f.fromB
	}
	s.pkt = g.build(f, fromA)
	return s
}

// The flags of ECN, RFC 3168.
const (
	flagECE = 0x40
	flagCWR = 0x80
)

// wrongFlags are flags that no end of a connection sends.
var wrongFlags = []uint8{0, 0x3f, packet.FlagFIN | packet.FlagPSH | packet.FlagURG, packet.FlagFIN,
	packet.FlagSYN | packet.FlagFIN, packet.FlagSYN | packet.FlagRST}

// stray returns a packet of no known flow that begins none.
func (g *generator) stray() sent {
	s := g.first()
	f := s.flow
	s.flow = nil
	switch {
	case f == nil:
	case f.proto == packet.ProtoTCP && len(s.pkt) > 40:
		flags := pick(g, []uint8{packet.FlagACK, packet.FlagACK, packet.FlagSYN | packet.FlagACK,
			packet.FlagFIN | packet.FlagACK, packet.FlagRST, packet.FlagRST | packet.FlagACK})
		wrong := g.rare && g.IntN(3) == 0
		if wrong {
			flags = pick(g, wrongFlags)
		}
		s.what = "stray segment"
		if flags == packet.FlagACK || wrong {
			s.kind = stray
		}
		s.pkt = g.tcp(f, true, flags)
	case g.IntN(2) == 0:
		f.last, f.lastA = s.pkt, true
		s = g.icmpError(f)
		s.flow, s.what = nil, "ICMP error about no flow"
	}
	return s
}

// build returns the next packet of a flow.
func (g *generator) build(f *flowState, fromA bool) []byte {
	src, dst := f.a, f.b
	if !fromA {
		src, dst = dst, src
	}
	v4 := src.Addr().Is4()
	switch f.proto {
	case packet.ProtoTCP:
		flags := uint8(packet.FlagACK)
		if f.step == 0 {
			flags = packet.FlagSYN
			if g.rare && g.IntN(4) == 0 { // it offers ECN
				flags |= flagECE | flagCWR
			}
		} else if f.step == 1 {
			flags |= packet.FlagSYN
		}
		return g.tcp(f, fromA, flags)
	case packet.ProtoUDP:
		return g.ip(src.Addr(), dst.Addr(), build.UDP{SrcPort: src.Port(), DstPort: dst.Port()},
			g.data())
	case packet.ProtoICMP, packet.ProtoICMPv6:
		id := uint32(f.a.Port())<<16 | uint32(f.b.Port())
		types := []rule.Range{{Lo: 8, Hi: 8}, {Lo: 0, Hi: 18}}
		if !v4 {
			types = []rule.Range{{Lo: 128, Hi: 128}, {Lo: 1, Hi: 145}}
			types = append(types, g.types[1]...)
			f.proto = packet.ProtoICMPv6
		} else {
			types = append(types, g.types[0]...)
			f.proto = packet.ProtoICMP
		}
		kind := uint8(g.inRanges(types, 254))
		if f.last != nil {
			if kind = icmpType(f.last); f.lastA != fromA {
				kind = answerTo(kind)
			}
		} else if f.step == 0 && g.IntN(2) == 0 {
			kind = uint8(types[0].Lo)
		}
		if !v4 {
			return g.ip(src.Addr(), dst.Addr(), build.ICMPv6{Type: kind, Rest: id}, g.data())
		}
		return g.ip(src.Addr(), dst.Addr(), build.ICMP{Type: kind, Rest: id}, g.data())
	}
	return g.ip(src.Addr(), dst.Addr(), build.Upper(f.proto), build.Data(make([]byte, 24)))
}

// data returns a payload.
func (g *generator) data() build.Data {
	return make(build.Data, pick(g, []int{40, 40, 40, 400, 1100}))
}

func (g *generator) tcp(f *flowState, fromA bool, flags uint8) []byte {
	src, dst, seq, ack := f.a, f.b, f.seq, f.ack
	if !fromA {
		src, dst, seq, ack = dst, src, ack, seq
	}
	if flags&packet.FlagACK == 0 {
		ack = 0
	}
	return g.ip(src.Addr(), dst.Addr(), build.TCP{SrcPort: src.Port(), DstPort: dst.Port(),
		Seq: seq, Ack: ack, Flags: flags, Window: 8192})
}

func (g *generator) ip(src, dst netip.Addr, layers ...build.Layer) []byte {
	ttl, tos := pick(g, []uint8{64, 64, 64, 2, 3, 4, 5, 6}), pick(g, []uint8{0, 0, 0, 0xb8, 0x28})
	var head build.Layer = build.IPv6{Src: src, Dst: dst, HopLimit: ttl, Class: tos}
	if src.Is4() {
		g.id = g.id%60000 + 1
		head = build.IPv4{Src: src, Dst: dst, ID: g.id, TTL: ttl, TOS: tos}
	}
	pkt, err := build.Packet(append([]build.Layer{head}, layers...)...)
	if err != nil {
		panic(err) // the generator is wrong
	}
	return pkt
}

// passed records that both sides let a packet of a flow pass.
func (g *generator) passed(s *sent) {
	f := s.flow
	if f == nil || s.what == "ICMP error" {
		return
	}
	fromA := f.step%2 == 0
	if f.proto == packet.ProtoTCP && f.step < 2 {
		if fromA {
			f.seq++
		} else {
			f.ack++
		}
	}
	f.last, f.lastA = s.pkt, fromA
	if f.step++; f.step == 1 {
		if len(g.flows) == 64 {
			g.flows = g.flows[1:]
		}
		if !f.b.Addr().IsMulticast() && !g.isBroadcast(f.b.Addr()) {
			g.flows = append(g.flows, f)
		}
	}
}

// refused forgets a flow of which a packet was refused.
func (g *generator) refused(s *sent) {
	for i, f := range g.flows {
		if f == s.flow && s.what != "ICMP error" {
			g.flows = append(g.flows[:i:i], g.flows[i+1:]...)
			return
		}
	}
}
