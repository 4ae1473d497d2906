package kernel

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// Random packets for TestCachesChangeNoVerdict.

// pathHop is a frame at a hook.
type pathHop struct {
	what        string
	out         bool
	recv, index uint32
	segment     uint32 // of a GSO packet
	frame       []byte
}

// pathMix makes random packets of the host, of pods and of others: between few ends, so that they
// belong to flows, and with headers that hardly any sender makes.
type pathMix struct {
	*frames
	r *rand.Rand
	// Of a sequence: who takes part mostly, and with which ports.
	who   []int
	ports []int
	calm  int      // one packet of so many has other headers, or comes in elsewhere
	seen  [][]byte // IP packets that have left, to be answered, repeated or quoted
	last  mixEnds
}

// mixEnds is between whom a packet goes, and at which of the links.
type mixEnds struct {
	from, to netip.Addr
	at       int
	out      bool
}

// begin chooses what a sequence is about: the fewer ends, the more packets share what is cached.
func (m *pathMix) begin(seed uint64) {
	m.r = rand.New(rand.NewPCG(seed, 16))
	m.seen, m.last = nil, mixEnds{}
	m.who = m.r.Perm(5)[:2+m.r.IntN(3)]
	m.ports, m.calm = nil, pick(m.r, 3, 10, 40)
	for range 2 + m.r.IntN(3) {
		m.ports = append(m.ports, pick(m.r, mixPorts...))
	}
}

func (m *pathMix) one() int {
	if m.r.IntN(12) == 0 {
		return m.r.IntN(5)
	}
	return pick(m.r, m.who...)
}

func (m *pathMix) port() int {
	if m.r.IntN(12) == 0 {
		return pick(m.r, mixPorts...)
	}
	return pick(m.r, m.ports...)
}

var (
	hostSix  = netip.MustParseAddr("2001:db8::1")
	mixPorts = []int{7, 53, 80, 80, 666, 2000, 2000, 8080, 8081}
	mixOdd4  = []string{"127.0.0.9", "0.0.0.0", "255.255.255.255", "224.0.0.5", "10.88.0.1",
		"169.254.0.7", "10.88.0.77", "192.0.2.44", "192.0.2.44", "10.200.0.10", "10.200.0.10",
		"10.200.0.10"}
	mixOdd6 = []string{"::", "::1", "ff02::1", "fe80::1", "fe80::9", "fe80:0:1::9", "fd00:88::1",
		"::ffff:10.88.0.2", "fd00:88::77", "fd00:200::10", "fd00:200::10"}
)

// at returns one of the addresses of a family.
func (m *pathMix) at(six bool, who int) netip.Addr {
	four := []string{"192.0.2.1", "192.0.2.2", "10.88.0.2", "10.88.0.3", "192.0.2.9"}
	all := []string{"2001:db8::1", "2001:db8::2", "fd00:88::2", "fd00:88::3", "2001:db8::9"}
	odd := mixOdd6
	if !six {
		all, odd = four, mixOdd4
	}
	switch m.r.IntN(28) {
	case 0, 1:
		return netip.MustParseAddr(pick(m.r, odd...))
	case 2: // of the pods, as their stacks have them
		if six && (who == 2 || who == 3) {
			return netip.MustParseAddr(fmt.Sprintf("fe80::ff:fe00:10%d", who))
		}
	}
	return netip.MustParseAddr(all[who])
}

// next returns a packet: mostly where its source is, sometimes elsewhere.
func (m *pathMix) next() *pathHop {
	r := m.r
	links := []crossing{m.nic, m.podLinks[podA], m.podLinks[podB]}
	where := []int{0, 0, 1, 2, 0} // of the ends of at
	h := &pathHop{}
	e, ip := m.last, []byte(nil)
	switch n := r.IntN(10); {
	case n < 5 && len(m.seen) > 0:
		ip, e = m.follow()
	case n > 7 && e.from.IsValid(): // another packet between the same
		ip = m.packet(e.from, e.to)
	default:
		six, from, to := r.IntN(2) == 0, m.one(), m.one()
		e = mixEnds{from: m.at(six, from), to: m.at(six, to), at: where[from], out: from == 0}
		if e.out {
			e.at = where[to]
		}
		ip = m.packet(e.from, e.to)
	}
	m.last = e
	h.out = e.out
	at := e.at
	switch r.IntN(4 * m.calm) {
	case 0:
		at = r.IntN(3)
	case 1: // from outside, also as the host
		h.out = false
	case 2: // the stack has routed it
		h.out, h.recv = true, links[r.IntN(3)].index
	}
	m.last.at, m.last.out = at, h.out && h.recv == 0
	h.index = links[at].index
	if r.IntN(m.calm) == 0 {
		ip = m.disturb(ip)
	}
	mac := links[at].mac[:]
	if r.IntN(25) == 0 {
		mac = pick(r, []byte{255, 255, 255, 255, 255, 255}, []byte{2, 9, 9, 9, 9, 9},
			[]byte{1, 0, 0x5e, 0, 0, 5})
	}
	typ := []byte{8, 0}
	if len(ip) > 0 && ip[0]>>4 == 6 {
		typ = []byte{0x86, 0xdd}
	}
	switch r.IntN(60) {
	case 0:
		typ = append([]byte{0x81, 0, 0, 5}, typ...)
	case 1:
		typ = append([]byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 6}, typ...)
	case 2:
		typ = pick(r, []byte{8, 0}, []byte{0x86, 0xdd}, []byte{8, 6}, []byte{0, 46})
	}
	ip = append(ip, make([]byte, max(0, 40-len(ip)))...) // the kernel runs no program without
	h.frame = slices.Concat(mac, []byte{2, 0, 0, 0, 0, 9}, typ, ip)
	if r.IntN(12) == 0 {
		h.segment = uint32(1 + r.IntN(2000))
	}
	h.what = fmt.Sprintf("out %v, at %d from %d, segments of %d: %.90x", h.out, h.index, h.recv,
		h.segment, h.frame)
	return h
}

// follow returns an answer to a packet that was seen, the packet again, or an error about it, and
// between whom it goes: it comes in where its source is, or leaves if that is the host.
func (m *pathMix) follow() (ip []byte, e mixEnds) {
	r := m.r
	seen := m.seen[max(0, len(m.seen)-1-pick(r, 0, r.IntN(4), r.IntN(20)))]
	size, src, proto, head := 4, 12, seen[9], 20
	if seen[0]>>4 == 6 {
		size, src, proto, head = 16, 8, seen[6], 40
	}
	e.from, _ = netip.AddrFromSlice(seen[src : src+size])
	e.to, _ = netip.AddrFromSlice(seen[src+size : src+2*size])
	answers := r.IntN(3) > 0
	if answers {
		e.from, e.to = e.to, e.from
	}
	links := map[netip.Addr]int{m.a.endpoint.Addrs[0]: 1, m.a.endpoint.Addrs[1]: 1,
		m.b.endpoint.Addrs[0]: 2, m.b.endpoint.Addrs[1]: 2}
	e.at = links[e.from]
	if e.out = e.from == hostAddr || e.from == hostSix; e.out {
		e.at = links[e.to]
	}
	if r.IntN(8) == 0 {
		return m.about(seen, e.from, e.to), e
	}
	if len(seen) < head+4 || proto != packet.ProtoTCP && proto != packet.ProtoUDP {
		return slices.Clone(seen), e
	}
	a, b := int(binary.BigEndian.Uint16(seen[head:])), int(binary.BigEndian.Uint16(seen[head+2:]))
	if answers {
		a, b = b, a
	}
	if proto == packet.ProtoTCP && answers && len(seen) >= head+20 && r.IntN(3) > 0 {
		return m.answer(seen[head:], e), e
	}
	return m.packetOf(proto == packet.ProtoTCP, e.from, e.to, a, b), e
}

// answer returns the segment that answers another one.
func (m *pathMix) answer(tcp []byte, e mixEnds) []byte {
	s := build.TCP{SrcPort: binary.BigEndian.Uint16(tcp[2:]), DstPort: binary.BigEndian.Uint16(tcp),
		Seq: binary.BigEndian.Uint32(tcp[8:]), Ack: binary.BigEndian.Uint32(tcp[4:]),
		Flags: packet.FlagACK, Window: 1000}
	if tcp[13]&packet.FlagSYN != 0 {
		s.Ack++
		if tcp[13]&packet.FlagACK == 0 {
			s.Seq, s.Flags = 1000, packet.FlagSYN|packet.FlagACK
		}
	}
	return m.ip(e.from, e.to, s, nil)
}

// about returns an ICMP error that quotes a packet.
func (m *pathMix) about(quoted []byte, from, to netip.Addr) []byte {
	quoted = quoted[:min(len(quoted), 28+m.r.IntN(60))]
	if from.Is6() {
		return m.ip(from, to, build.ICMPv6{Type: uint8(1 + m.r.IntN(4))}, quoted)
	}
	return m.ip(from, to, build.ICMP{Type: pick(m.r, uint8(3), 4, 5, 11, 12)}, quoted)
}

// packet returns a packet of any protocol.
func (m *pathMix) packet(from, to netip.Addr) []byte {
	r := m.r
	kind := r.IntN(12)
	if from.IsLinkLocalUnicast() { // as neighbour discovery has it
		kind %= 4
	}
	switch kind {
	case 0, 1:
		if from.Is6() {
			typ := pick(r, uint8(128), 129, 133, 134, 135, 136, 137)
			return m.ip(from, to, build.ICMPv6{Type: typ, Rest: uint32(r.IntN(3)) << 16},
				make([]byte, 20))
		}
		return m.ip(from, to, build.ICMP{Type: pick(r, uint8(8), 0, 13, 14),
			Rest: uint32(r.IntN(3)) << 16}, make([]byte, 20))
	case 2, 3, 4, 5, 6:
		return m.packetOf(false, from, to, m.port(), m.port())
	}
	return m.packetOf(true, from, to, m.port(), m.port())
}

// packetOf returns one of TCP or UDP.
func (m *pathMix) packetOf(tcp bool, from, to netip.Addr, a, b int) []byte {
	if !tcp {
		return m.ip(from, to, build.UDP{SrcPort: uint16(a), DstPort: uint16(b)},
			make([]byte, pick(m.r, 18, 18, 18, 0, 1400, 1473)))
	}
	s := (&natMatch{r: m.r}).segment()
	return m.ip(from, to, build.TCP{SrcPort: uint16(a), DstPort: uint16(b), Seq: s.seq, Ack: s.ack,
		Flags: s.flags, Window: 1000}, nil)
}

func (m *pathMix) ip(from, to netip.Addr, l build.Layer, data []byte) []byte {
	var header build.Layer = build.IPv4{Src: from, Dst: to, TTL: 64, ID: uint16(m.r.IntN(4))}
	if from.Is6() {
		hops := uint8(64)
		if i, ok := l.(build.ICMPv6); ok && i.Type >= 133 && i.Type <= 137 && m.r.IntN(4) > 0 {
			hops = 255
		}
		header = build.IPv6{Src: from, Dst: to, HopLimit: hops}
	}
	return enginetest.Packet(m.t, header, l, build.Data(data))
}

// disturb changes headers of a packet.
func (m *pathMix) disturb(ip []byte) []byte {
	r := m.r
	b := slices.Clone(ip)
	four := b[0]>>4 == 4
	head, length, ttl, proto := 40, 4, 7, 6
	if four {
		head, length, ttl, proto = 20, 2, 8, 9
	}
	if len(b) < head+8 {
		return b
	}
	add16 := func(at, n int) {
		binary.BigEndian.PutUint16(b[at:], uint16(int(binary.BigEndian.Uint16(b[at:]))+n))
	}
	insert := func(what ...byte) {
		b = slices.Insert(b, head, what...)
		add16(length, len(what))
	}
	switch r.IntN(15) {
	case 0, 1, 2:
		b[ttl] = pick(r, byte(0), 1, 2, 255)
	case 3:
		add16(0, pick(r, 1, 2, 4, 8, 0x10, 0xb8))
	case 4: // the length of the packet
		add16(length, pick(r, -1, 1, -head, -head-8, 4, -8))
	case 5: // that of UDP, or the offset of TCP
		b[min(head+pick(r, 4, 5, 12), len(b)-1)] = byte(r.IntN(256))
	case 6: // no checksum
		b[head+6], b[head+7] = 0, 0
	case 7: // padding
		b = append(b, make([]byte, 1+r.IntN(40))...)
	case 8: // cut off
		b = b[:head+r.IntN(len(b)-head)]
	case 9: // any byte
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 10: // flags of TCP
		b[min(head+13, len(b)-1)] = byte(r.IntN(256))
	case 11, 12: // options
		if four {
			b[0]++
			insert(pick(r, []byte{148, 4, 0, 0}, []byte{7, 3, 4, 0}, []byte{1, 1, 1, 1})...)
			break
		}
		next := b[proto]
		b[proto] = pick(r, byte(0), 60, 43, 44)
		insert(next, 0, pick(r, byte(1), 0, 5), pick(r, byte(4), 0, 2), 0, 0, 0, 0)
	default: // a fragment
		off := pick(r, 0, 0, 24, 8, 48)
		if four {
			binary.BigEndian.PutUint16(b[6:], uint16(off/8|pick(r, 0, 0x2000, 0x4000)))
			break
		}
		next := b[proto]
		b[proto] = 44
		insert(next, 0, byte(off>>8), byte(off|r.IntN(2)), 0, 0, 0, byte(r.IntN(3)))
	}
	return b
}
