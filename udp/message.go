package udp

import (
	"iter"
	"net/netip"
	"time"
)

// MaxPayload is the size that a buffer must have to receive anything that a socket can deliver: the
// largest datagram, or the largest GRO packet when Config.GRO is on.
const MaxPayload = 65535

// ECN is the congestion notification field of the IP header (RFC 3168, section 5).
type ECN uint8

// The four code points.
const (
	NotECT ECN = 0
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

// Message is one datagram, or one GSO or GRO packet of datagrams of equal size, sent or received.
//
// For reading, the caller sets Buffers; ReadBatch fills in everything else. For writing, the caller
// sets Buffers and Addr, and the other fields as needed; WriteBatch fills in N.
type Message struct {
	// Buffers are filled, or sent, one after the other. They belong to the caller.
	Buffers [][]byte
	// N is the number of payload bytes received or sent.
	N int
	// Addr is the other end. It is ignored when a connected Conn writes. The zone of a link-local
	// address is the name of the interface, or its number.
	Addr netip.AddrPort
	// Local is the address of this host that the datagram came to (Config.PacketInfo), or must
	// leave from when valid.
	Local netip.Addr
	// IfIndex is the interface that the datagram came through (Config.PacketInfo), or must leave by
	// when not zero.
	IfIndex int
	// Segment, when not zero, means that the payload is several datagrams of that many bytes, of
	// which the last may be shorter. A message to write may set it too: each piece is then sent as
	// a datagram of its own.
	Segment int
	// ECN is the field of the received IP header (Config.ECN), or of the header to send. NotECT
	// leaves the socket's own value.
	ECN ECN
	// Truncated means that the datagram was longer than Buffers; the rest of it is lost.
	Truncated bool
	// Time is when the kernel received the datagram (Config.Timestamps).
	Time time.Time
}

// Payload returns the received bytes in the first buffer: all N bytes if the message has one
// buffer. The slice points into that buffer.
func (m *Message) Payload() []byte {
	if len(m.Buffers) == 0 {
		return nil
	}
	return m.Buffers[0][:min(m.N, len(m.Buffers[0]))]
}

// Segments returns an iterator over the datagrams of a received message with one buffer. Only a GRO
// packet has several. The slices point into the buffer.
func (m *Message) Segments() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := m.Payload()
		if m.Segment <= 0 || len(rest) <= m.Segment {
			yield(rest)
			return
		}
		for len(rest) > 0 {
			n := min(m.Segment, len(rest))
			if !yield(rest[:n:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// size is the number of bytes in the message's buffers.
func (m *Message) size() int {
	if len(m.Buffers) == 1 {
		return len(m.Buffers[0])
	}
	n := 0
	for _, b := range m.Buffers {
		n += len(b)
	}
	return n
}

// clear resets the fields that a read fills in.
func (m *Message) clear() {
	m.N, m.IfIndex, m.Segment = 0, 0, 0
	m.ECN, m.Truncated = 0, false
	m.Local = netip.Addr{}
	m.Time = time.Time{}
}
