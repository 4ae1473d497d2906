package overlay

import (
	"encoding/binary"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"
)

const (
	maxPacket = 65535
	// maxDatagrams is how many UDP datagrams are coalesced at most: what every kernel accepts
	// (UDP_MAX_SEGMENTS before 6.9).
	maxDatagrams = 64
	// openFlows is how many flows are coalesced at once. Segments that the other node's kernel or
	// network card cut from a GSO packet come one after the other.
	openFlows = 8
	// headerSpace holds the kernel's header, any IPv4 or IPv6 header without extensions, and any
	// TCP header.
	headerSpace = 144
	// headerAt is where in that space the IP header begins.
	headerAt = 16
)

// unit is what is filtered and written as one: a packet of a batch, or several of one flow that
// were cut from one.
type unit struct {
	segment           // the first packet
	first, last int32 // packets of the batch
	count       int32
	size        int    // of the whole
	next        uint32 // the sequence number that continues it
	closed      bool   // nothing may follow
	checked     bool   // the first packet's checksum was looked at
	at          int32  // offset of the common header in the slab
}

// coalescer combines the packets of a batch to units. A unit of several packets gets a header of
// its own; packets are not written to.
type coalescer struct {
	noTCP, noUDP bool

	in    [][]byte
	link  []int32 // for each packet, the next one of its unit, or -1
	units []unit
	open  [openFlows]int32 // units that may be continued, one for each flow; -1 is none
	turn  int              // where in open the next flow goes
	// headers of units of several packets, headerSpace bytes apart; bytes behind a header belong to
	// others
	slab []byte
	used int // bytes of slab in use
}

// add appends a packet.
func (m *coalescer) add(p []byte, s segment) {
	i := int32(len(m.in))
	m.in, m.link = append(m.in, p), append(m.link, -1)
	u := unit{segment: s, first: i, last: i, count: 1, size: len(p)}
	if s.protocol == protocolTCP && !m.noTCP || s.protocol == protocolUDP && !m.noUDP {
		slot := m.slotOf(p, s)
		if k := m.open[slot]; k >= 0 && m.coalesce(&m.units[k], p, i, s) {
			return
		}
		m.open[slot] = int32(len(m.units)) // later packets must not overtake this one
		u.next, u.closed = s.seq+uint32(s.payload), s.push || s.payload == 0
	} else {
		m.passFragment(p)
	}
	m.units = append(m.units, u)
}

// passFragment lets no unit between the addresses of a fragment be continued: it may be of any of
// their flows, and what comes behind it must not overtake it.
func (m *coalescer) passFragment(p []byte) {
	addrs := fragmentAddrs(p)
	if addrs == nil {
		return
	}
	for _, k := range m.open {
		if k < 0 {
			continue
		}
		u := &m.units[k]
		if flow := u.flow(m.in[u.first]); string(flow[:len(flow)-4]) == string(addrs) {
			u.closed = true
		}
	}
}

// slotOf returns the slot in open that a flow has, or gets.
func (m *coalescer) slotOf(p []byte, s segment) int {
	flow := s.flow(p)
	for i := range openFlows {
		slot := (m.turn + openFlows - 1 - i) % openFlows // the newest first
		k := m.open[slot]
		if k < 0 {
			break
		}
		if u := &m.units[k]; u.ip == s.ip && u.protocol == s.protocol &&
			string(u.flow(m.in[u.first])) == string(flow) {
			return slot
		}
	}
	slot := m.turn
	m.turn = (m.turn + 1) % openFlows
	m.open[slot] = -1
	return slot
}

// coalesce adds packet i to a unit of the same flow, if it continues that and both are intact. A
// packet with a wrong checksum stays alone: the kernel trusts the checksum of what was coalesced.
func (m *coalescer) coalesce(u *unit, p []byte, i int32, s segment) bool {
	size := u.size + s.payload
	if u.closed || s.payload == 0 || s.payload > u.payload || size > maxPacket {
		return false
	}
	if s.protocol == protocolTCP && s.seq != u.next || s.protocol == protocolUDP &&
		u.count == maxDatagrams {
		return false
	}
	head := m.in[u.first]
	if !u.sameHeaders(head, s, p) {
		return false
	}
	if !u.checked {
		u.checked = true
		if !u.checksumOK(head) {
			u.closed = true
			return false
		}
	}
	if !s.checksumOK(p) {
		return false
	}
	m.link[u.last] = i
	u.last = i
	u.count++
	u.size = size
	u.next += uint32(s.payload)
	u.push = s.push
	u.closed = s.push || s.payload < u.payload
	return true
}

// packet is what the filter sees of unit k: the packet, or the common headers with the length of
// all. What follows these is not the unit's (Quotable).
func (m *coalescer) packet(k int) []byte {
	u := &m.units[k]
	head := m.in[u.first]
	if u.count == 1 {
		return head
	}
	if need := len(m.in)/2*headerSpace + maxPacket; len(m.slab) < need {
		// all packets are there: it holds all headers
		m.slab = make([]byte, max(need, batchSize/2*headerSpace+maxPacket))
	}
	at := m.used + headerAt
	m.used += headerSpace
	u.at = int32(at)
	p := m.slab[at : at+u.size]
	copy(p, head[:u.header])
	if u.ip == 20 {
		binary.BigEndian.PutUint16(p[2:], uint16(u.size))
	} else {
		binary.BigEndian.PutUint16(p[4:], uint16(u.size-40))
	}
	switch {
	case u.protocol == protocolUDP:
		binary.BigEndian.PutUint16(p[u.ip+4:], uint16(u.size-u.ip))
	case u.push:
		p[u.ip+13] |= tcpPush
	}
	return p
}

// finish completes the common header of a unit for the kernel, which computes the rest of the
// checksum when it has to. It returns the header with the kernel's own in front.
func (u *unit) finish(slab []byte) []byte {
	p := slab[u.at:][:u.header]
	v := vnet{flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, header: uint16(u.header),
		segment:   uint16(u.payload),
		csumStart: uint16(u.ip), csumFrom: uint16(u.checksumAt())}
	switch {
	case u.protocol == protocolUDP:
		v.kind = unix.VIRTIO_NET_HDR_GSO_UDP_L4
	case u.ip == 20:
		v.kind = unix.VIRTIO_NET_HDR_GSO_TCPV4
	default:
		v.kind = unix.VIRTIO_NET_HDR_GSO_TCPV6
	}
	if u.ip == 20 {
		p[10], p[11] = 0, 0
		binary.BigEndian.PutUint16(p[10:], ^tun.Checksum(p[:20], 0))
	}
	binary.BigEndian.PutUint16(p[u.ip+u.checksumAt():], u.pseudo(p, u.size-u.ip))
	v.put(slab[u.at-vnetSize:])
	return slab[int(u.at)-vnetSize : int(u.at)+u.header]
}

// reset drops the references to the packets, which belong to the caller.
func (m *coalescer) reset() {
	clear(m.in)
	m.in, m.link, m.units, m.used, m.turn = m.in[:0], m.link[:0], m.units[:0], 0, 0
	for i := range m.open {
		m.open[i] = -1
	}
}
