package overlay

import "encoding/binary"

// A run is segments of one TCP connection that came together, in order, and differ in nothing but what a segment must
// differ in: the kernel of the other node cut them from one super packet. It is judged as the super packet would have been,
// which costs the judgement of one packet. Only the headers of that are there; nobody who judges reads beyond them.

const (
	// headerRoom holds any IPv4 or IPv6 header without extensions, and any TCP header.
	headerRoom = 128
	maxPacket  = 65535
)

// runs are the packets of a batch, some of them joined.
type runs struct {
	packets [][]byte // what is judged
	of      []int32  // for each packet of the batch, the index of what it is judged by
	slab    []byte   // headers of joined runs, headerRoom bytes apart; what is behind them belongs to others
	joined  int      // places used in slab
	open    segment  // the packet or run that the next one may join
	count   int      // segments in it
	last    int      // its index in packets
}

// segment is what matters of a TCP segment without IP options, extension headers or fragments.
type segment struct {
	ip, header int // length of the IP header, and of it and the TCP header
	payload    int
	seq        uint32
	push       bool
	fixed      bool // whether it may be joined at all
}

const (
	tcpPush = 0x08
	tcpAck  = 0x10
)

// segmentOf reads a packet.
func segmentOf(p []byte) segment {
	var s segment
	switch {
	case len(p) >= 40 && p[0] == 0x45 && p[9] == 6 && p[6]&0x3f == 0 && p[7] == 0 && int(binary.BigEndian.Uint16(p[2:])) == len(p):
		s.ip = 20
	case len(p) >= 60 && p[0]>>4 == 6 && p[6] == 6 && int(binary.BigEndian.Uint16(p[4:])) == len(p)-40:
		s.ip = 40
	default:
		return s
	}
	tcp := p[s.ip:]
	s.header = s.ip + int(tcp[12]>>4)*4
	s.payload = len(p) - s.header
	s.seq = binary.BigEndian.Uint32(tcp[4:])
	s.push = tcp[13]&tcpPush != 0
	s.fixed = s.header >= s.ip+20 && s.payload > 0 && tcp[13]&^tcpPush == tcpAck
	return s
}

// follows says whether segment t, of packet q, continues the run that ends before sequence number next and whose first
// segment is s, of packet p: every header field is the same but length, id, checksums, sequence number and PSH.
func (s segment) follows(p []byte, t segment, q []byte, next uint32) bool {
	if !t.fixed || s.ip != t.ip || s.header != t.header || t.seq != next || t.payload > s.payload {
		return false
	}
	const v4 = 20
	if s.ip == v4 {
		if p[1] != q[1] || p[6] != q[6] || p[8] != q[8] || string(p[12:v4]) != string(q[12:v4]) {
			return false
		}
	} else if string(p[:4]) != string(q[:4]) || string(p[6:40]) != string(q[6:40]) {
		return false
	}
	a, b := p[s.ip:s.header], q[s.ip:s.header]
	return string(a[:4]) == string(b[:4]) && string(a[8:13]) == string(b[8:13]) && string(a[14:16]) == string(b[14:16]) &&
		string(a[18:]) == string(b[18:])
}

// add puts a packet behind the others.
func (r *runs) add(p []byte) {
	t := segmentOf(p)
	if s := &r.open; r.count > 0 && s.fixed && !s.push {
		head := r.packets[r.last]
		size := len(head) + t.payload
		next := s.seq + uint32(len(head)-s.header)
		if size <= maxPacket && s.follows(head, t, p, next) {
			r.join(t, size)
			r.of = append(r.of, int32(r.last))
			s.push = t.push || t.payload < s.payload // the last one of the run
			return
		}
	}
	r.last = len(r.packets)
	r.packets = append(r.packets, p)
	r.of = append(r.of, int32(r.last))
	r.open, r.count = t, 1
}

// join makes the open packet longer. The first time it gets a header of its own.
func (r *runs) join(t segment, size int) {
	head := r.packets[r.last]
	if r.count == 1 {
		at := r.joined * headerRoom
		if need := at + headerRoom + maxPacket; len(r.slab) < need {
			// Headers that are in use stay where they are, in the old slab.
			r.slab = make([]byte, max(need, batchSize/2*headerRoom+maxPacket))
		}
		r.joined++
		copy(r.slab[at:], head[:r.open.header])
		head = r.slab[at : at+len(head)]
	}
	r.count++
	head = head[:size]
	if r.open.ip == 20 {
		binary.BigEndian.PutUint16(head[2:], uint16(size))
	} else {
		binary.BigEndian.PutUint16(head[4:], uint16(size-40))
	}
	if t.push {
		head[r.open.ip+13] |= tcpPush
	}
	r.packets[r.last] = head
}

// reset forgets the packets, which are not ours.
func (r *runs) reset() {
	clear(r.packets)
	r.packets, r.of, r.joined, r.count = r.packets[:0], r.of[:0], 0, 0
}
