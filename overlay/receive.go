package overlay

import (
	"errors"
	"net"
	"time"

	"github.com/tailscale/wireguard-go/conn"

	"github.com/weirnet/weir/udp"
)

const (
	// directSlots GRO packets fit into the slab that the device passes, and are received there
	// without a copy.
	directSlots = 2
	// ringSlots is how many datagrams are received at once when they come singly. Then system calls
	// dominate the cost, not the copy of 1.5 kB into the slab. Twice as many gained nothing.
	ringSlots = 32
	// singleReads is after how many reads without a GRO packet none is expected.
	// Among acknowledgements of a flow in the other direction there are always some.
	singleReads = 16
)

// receiver reads one socket.
type receiver struct {
	bind *bind
	conn *udp.Conn

	direct  []udp.Message // point into the slab
	ring    []udp.Message // slots of our own; most of their pages are never touched
	pending []udp.Message // the part of ring that did not fit
	rest    int           // how many bytes of pending[0] were handed out
	singly  int           // how many reads of direct in a row were full of single datagrams

	opener *opener         // nil: all messages go to the device
	last   *remoteEndpoint // most packets have the same source as the one before
}

func (b *bind) receiver(c *udp.Conn) conn.ReceiveFunc {
	r := &receiver{bind: b, conn: c, direct: make([]udp.Message, directSlots),
		ring: make([]udp.Message, ringSlots), opener: b.opener()}
	slab := make([]byte, ringSlots*udp.MaxPayload)
	for i := range r.ring {
		r.ring[i].Buffers = [][]byte{slab[i*udp.MaxPayload : (i+1)*udp.MaxPayload]}
	}
	for i := range r.direct {
		r.direct[i].Buffers = make([][]byte, 1)
	}
	return r.receive
}

// receive implements conn.ReceiveFunc. The device ends on most errors, so only the end of the
// socket is returned.
func (r *receiver) receive(slab []byte, packets []conn.ReceivedPacket) (int, error) {
	for failed := 0; ; {
		var n int
		var err error
		switch {
		case len(r.pending) > 0:
			n = r.copyOut(slab, packets)
		case r.singly >= singleReads || len(slab) < directSlots*udp.MaxPayload:
			n, err = r.readRing(slab, packets)
		default:
			n, err = r.readDirect(slab, packets)
		}
		if errors.Is(err, net.ErrClosed) {
			return 0, net.ErrClosed
		}
		if err != nil {
			// such as an ICMP error of an earlier datagram; reading it cleared it
			r.bind.readErrors.Add(1)
			if failed++; failed > 10 {
				time.Sleep(10 * time.Millisecond) // a permanent error: do not spin
			}
			continue
		}
		if n > 0 {
			return n, nil
		}
	}
}

// readDirect receives GRO packets into the device's slab.
func (r *receiver) readDirect(slab []byte, packets []conn.ReceivedPacket) (int, error) {
	for i := range r.direct {
		r.direct[i].Buffers[0] = slab[i*udp.MaxPayload : (i+1)*udp.MaxPayload]
	}
	got, err := r.conn.ReadBatch(r.direct)
	if err != nil {
		return 0, err
	}
	now, n, singly := r.bind.now(), 0, got == directSlots
	r.opener.begin()
	for i := range got {
		m := &r.direct[i]
		a := r.remoteOf(m, now)
		singly = singly && m.Segment == 0
		at := i * udp.MaxPayload
		for b := range m.Segments() {
			if n == len(packets) {
				break
			}
			if !r.opener.add(b, a) && !r.bind.probe(b, a) {
				packets[n] = conn.ReceivedPacket{Offset: at, Size: len(b), Endpoint: a}
				n++
			}
			at += len(b)
		}
	}
	r.opener.end()
	if r.singly++; !singly {
		r.singly = 0
	}
	return n, nil
}

// readRing receives many single datagrams.
func (r *receiver) readRing(slab []byte, packets []conn.ReceivedPacket) (int, error) {
	got, err := r.conn.ReadBatch(r.ring)
	if err != nil {
		return 0, err
	}
	for i := range got {
		if r.ring[i].Segment > 0 {
			r.singly = 0
		}
	}
	r.pending = r.ring[:got]
	return r.copyOut(slab, packets), nil
}

// copyOut copies pending datagrams to the slab, as many as fit.
func (r *receiver) copyOut(slab []byte, packets []conn.ReceivedPacket) int {
	now, n, at := r.bind.now(), 0, 0
	r.opener.begin()
	defer r.opener.end()
	for len(r.pending) > 0 {
		m := &r.pending[0]
		a := r.remoteOf(m, now)
		payload := m.Payload()
		for {
			b := payload[r.rest:]
			if m.Segment > 0 {
				b = b[:min(m.Segment, len(b))]
			}
			if n == len(packets) || at+len(b) > len(slab) {
				return n
			}
			if !r.opener.add(b, a) && !r.bind.probe(b, a) {
				copy(slab[at:], b)
				packets[n] = conn.ReceivedPacket{Offset: at, Size: len(b), Endpoint: a}
				at += (len(b) + 15) &^ 15
				n++
			}
			if r.rest += len(b); r.rest >= len(payload) {
				break
			}
		}
		r.pending, r.rest = r.pending[1:], 0
	}
	return n
}

// remoteOf returns the endpoint of a received message.
func (r *receiver) remoteOf(m *udp.Message, now int64) *remoteEndpoint {
	a := r.last
	if a == nil || a.addr != m.Addr || a.local != m.Local || a.ifindex != m.IfIndex {
		a = r.bind.remotes.get(r.bind, path{m.Addr, m.Local, m.IfIndex})
		r.last = a
	}
	a.seen.Store(now)
	a.data.Store(m.N > sizeKeepalive)
	return a
}
