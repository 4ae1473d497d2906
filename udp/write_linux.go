package udp

import (
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// cursor is a position in a batch for writing: a message, and how many bytes of it are done. off is
// not zero only inside a message that has a Segment and is sent in pieces.
type cursor struct{ msg, off int }

func (c *Conn) writeBatch(msgs []Message) (int, error) {
	r := c.sys.writers.get(c)
	defer r.release()
	r.grow(len(msgs))
	at, tries := cursor{}, 0
	for at.msg < len(msgs) {
		if !r.layOutWrite(msgs, at) {
			return at.msg, fmt.Errorf("udp: write to %s: %w", msgs[at.msg].Addr, ErrFamily)
		}
		err := c.sys.run(&c.sys.write, r.send)
		if r.done > 0 {
			tries = 0
			r.tally(r.starts[r.done].msg - at.msg)
		}
		at = r.starts[r.done]
		if err != nil {
			return at.msg, fmt.Errorf("udp: write on %s: %w", c.local, err)
		}
		if r.errno == 0 {
			continue
		}
		if r.errno == unix.EAGAIN {
			return at.msg, ErrFull
		}
		if !r.retry(&msgs[at.msg], tries) {
			return at.msg, fmt.Errorf("udp: write to %s: %w", msgs[at.msg].Addr, r.errno)
		}
		tries++
	}
	// Neighbouring buffers share a vector, which keeps only the first alive.
	runtime.KeepAlive(msgs)
	return len(msgs), nil
}

// tally counts the headers that the kernel took, which hold n messages.
func (r *ring) tally(n int) {
	gso := 0
	for i := range r.done {
		if r.segmentOf(i) > 0 {
			gso++
		}
	}
	s := &r.conn.stats
	s.writeCalls.Add(1)
	s.writePackets.Add(uint64(n))
	if gso > 0 {
		s.writeGSO.Add(uint64(gso))
	}
}

// retry reports whether the header that failed is worth another try, and prepares what that try
// does differently.
func (r *ring) retry(m *Message, tries int) bool {
	c := r.conn
	segment := r.segmentOf(r.done)
	switch r.errno {
	case unix.EIO, unix.EINVAL, unix.EMSGSIZE:
		if r.errno == unix.EMSGSIZE && c.config.Errors && tries == 0 {
			break // may be the error of an earlier datagram
		}
		to := c.destination(m)
		if segment > 0 {
			c.sys.routes.refuse(to, segment, r.errno == unix.EIO)
			c.stats.gsoRefused.Add(1)
			return true // laid out again, now one by one
		}
		if tries > 0 {
			c.sys.routes.forget(to) // GSO was not the reason
		}
		return false
	case unix.ENOBUFS:
		if tries >= 3 {
			return false
		}
	case unix.EPERM:
		// Connection tracking sometimes refuses the first datagram of a flow (golang/go#63322).
		if tries >= 1 {
			return false
		}
	default:
		// The kernel reports the error of an earlier datagram to the next call, which then sends
		// nothing.
		if !c.config.Errors || !isQueued(r.errno) || tries >= 3 {
			return false
		}
	}
	c.stats.retried.Add(1)
	return true
}

// segmentOf returns the segment size of header i, or 0. UDP_SEGMENT is the first control message,
// if present.
func (r *ring) segmentOf(i int) int {
	h := &r.headers[i].Hdr
	if h.Control == nil {
		return 0
	}
	level, typ, data, _, ok := nextControl(r.controlOf(i)[:h.Controllen])
	if !ok || level != unix.SOL_UDP || typ != unix.UDP_SEGMENT {
		return 0
	}
	return int(*(*uint16)(ptr(&data[0])))
}

// destination returns the address that m is sent to.
func (c *Conn) destination(m *Message) netip.Addr {
	if c.connected {
		return c.remote.Addr()
	}
	return m.Addr.Addr()
}

// layOutWrite fills headers with the messages from at on. It stops at a message to whose address
// the socket cannot send, and returns false if that is the first one.
func (r *ring) layOutWrite(msgs []Message, at cursor) bool {
	c := r.conn
	gso := c.sys.gso
	r.vectors, r.count, r.done, r.errno = r.vectors[:0], 0, 0, 0
	for at.msg < len(msgs) && r.count < len(r.headers) {
		i := r.count
		m := &msgs[at.msg]
		to := c.destination(m)
		is4 := to.Is4() || to.Is4In6()
		h := &r.headers[i].Hdr
		h.Name, h.Namelen = nil, 0
		if !c.connected {
			h.Namelen = putName(&r.names[i], m.Addr, c.family, &c.sys.zones)
			if h.Namelen == 0 {
				break
			}
			h.Name = (*byte)(ptr(&r.names[i]))
		}
		limit := 0
		if gso {
			limit = c.sys.routes.max(to)
		}
		r.starts[i], r.spans[i] = at, int32(len(r.vectors))
		next, segment := r.gather(msgs, at, limit, is4)
		h.Control = nil
		h.SetControllen(0)
		if segment > 0 || m.ECN != 0 || m.IfIndex != 0 || m.Local.IsValid() {
			b := buildControl(r.controlOf(i), m, segment, is4)
			h.Control = unsafe.SliceData(b)
			h.SetControllen(len(b))
		}
		at = next
		r.count++
	}
	r.starts[r.count], r.spans[r.count] = at, int32(len(r.vectors))
	for i := range r.count { // only now: the vectors may have moved while they grew
		h, n := &r.headers[i].Hdr, int(r.spans[i+1]-r.spans[i])
		h.Iov = nil
		if n > 0 {
			h.Iov = &r.vectors[r.spans[i]]
		}
		h.SetIovlen(n)
	}
	return r.count > 0
}

// The most bytes of datagrams that the kernel takes in one GSO packet.
const (
	maxGSO4 = 65535 - 20 - 8
	maxGSO6 = 65535 - 8
)

// gather adds the vectors of one header: the datagram at position at, and those after it that can
// share a GSO packet with segments of at most limit bytes. It returns where the next header begins,
// and the segment size, 0 for a single datagram.
func (r *ring) gather(msgs []Message, at cursor, limit int, is4 bool) (next cursor, segment int) {
	space, first := maxGSO6, len(r.vectors)
	if is4 {
		space = maxGSO4
	}
	head := &msgs[at.msg]
	size := r.addDatagram(head, at.off, first)
	next = at.after(head, size)
	if size == 0 || size > limit {
		return next, 0
	}
	segments, last := 1, size
	for space -= size; last == size && segments < r.conn.sys.segments &&
		next.msg < len(msgs); segments++ {
		m := &msgs[next.msg]
		n := m.datagram(next.off)
		if n == 0 || n > size || n > space || len(r.vectors)-first+len(m.Buffers) > maxVectors ||
			!sameHeader(head, m) {
			break
		}
		r.addDatagram(m, next.off, first)
		next, last = next.after(m, n), n
		space -= n
	}
	if segments == 1 {
		return next, 0
	}
	return next, size
}

// sameHeader reports whether two messages may share a header.
func sameHeader(a, b *Message) bool {
	return a == b || a.Addr == b.Addr && a.ECN == b.ECN && a.Local == b.Local &&
		a.IfIndex == b.IfIndex
}

// datagram returns the size of the datagram that begins at off.
func (m *Message) datagram(off int) int {
	n := m.size() - off
	if m.Segment > 0 && n > m.Segment {
		return m.Segment
	}
	return n
}

// after returns the position after a datagram of n bytes at a, in message m. At the end of m it
// sets m.N.
func (a cursor) after(m *Message, n int) cursor {
	if m.Segment > 0 && a.off+n < m.size() {
		return cursor{a.msg, a.off + n}
	}
	m.N = a.off + n
	return cursor{a.msg + 1, 0}
}

// addDatagram adds the vectors of the datagram of m at off to the header whose vectors begin at
// first; it returns the datagram's size.
func (r *ring) addDatagram(m *Message, off, first int) int {
	if len(m.Buffers) == 1 && off == 0 && m.Segment == 0 {
		r.addVector(m.Buffers[0], first)
		return len(m.Buffers[0])
	}
	size := m.datagram(off)
	left := size
	for _, b := range m.Buffers {
		if off >= len(b) {
			off -= len(b)
			continue
		}
		b = b[off:min(len(b), off+left)]
		off = 0
		r.addVector(b, first)
		if left -= len(b); left == 0 {
			break
		}
	}
	return size
}

// isQueued reports whether a socket call may have returned the error of an earlier datagram, from
// an ICMP message.
func isQueued(e syscall.Errno) bool {
	switch e {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENOPROTOOPT,
		unix.EPROTO,
		unix.EACCES, unix.EMSGSIZE, unix.EOPNOTSUPP, unix.ENONET:
		return true
	}
	return false
}
