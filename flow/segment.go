package flow

import (
	"encoding/binary"

	"github.com/weirnet/weir/packet"
)

// Segment contains the fields of a packet that the state machine uses.
type Segment struct {
	Bytes  uint32 // IP length
	Seq    uint32 // TCP: SEQ; SCTP: verification tag
	Ack    uint32 // TCP: ACK
	Len    uint32 // TCP: bytes of payload, SYN and FIN counting one each
	Window uint32 // TCP: window as sent, not scaled
	Flags  uint8  // TCP: flags
	Scale  uint8  // TCP: shift of the window scale option of a SYN, else NoScale
	Chunk  uint8  // SCTP: type of the first chunk, NoChunk if there is none
	Bits   uint8  // SCTP: flags of the first chunk
	// SCTP: the tag that an INIT or INIT ACK asks the other end to use, 0 for none
	Init uint32
}

// NoScale is Segment.Scale of a segment without the window scale option.
const NoScale = 0xff

// NoChunk is Segment.Chunk of an SCTP packet that ends before its first chunk (type 255 is
// reserved, RFC 9260 3.2).
const NoChunk = 0xff

// Types of SCTP chunks that change a state, and the T bit of ABORT and SHUTDOWN COMPLETE. With that
// bit the tag is the one that the receiver of the packet uses, sent back (RFC 9260 8.5.1).
const (
	chunkInit             = 1
	chunkInitAck          = 2
	chunkAbort            = 6
	chunkShutdownComplete = 14
	bitT                  = 1
)

// SegmentOf reads the segment from the packet p, decoded from b.
func SegmentOf(p *packet.Packet, b []byte) Segment {
	s := Segment{Bytes: p.Len(), Seq: p.Seq, Ack: p.Ack, Window: uint32(p.Window()),
		Flags: p.TCPFlags}
	switch p.Proto {
	case packet.ProtoTCP:
		s.Len = p.Len() - uint32(p.PayloadOffset())
		if s.Flags&(packet.FlagSYN|packet.FlagFIN) != 0 {
			s.markers(p, b)
		}
	case packet.ProtoSCTP:
		s.Chunk = NoChunk
		if int(p.PayloadOffset())+4 <= int(p.Len()) {
			s.Chunk, s.Bits = b[p.PayloadOffset()], b[p.PayloadOffset()+1]
		}
		if (s.Chunk == chunkInit || s.Chunk == chunkInitAck) &&
			int(p.PayloadOffset())+8 <= int(p.Len()) {
			s.Init = binary.BigEndian.Uint32(b[p.PayloadOffset()+4:])
		}
	}
	return s
}

// markers counts SYN and FIN in the length and reads the window scale of a SYN.
func (s *Segment) markers(p *packet.Packet, b []byte) {
	if s.Flags&packet.FlagFIN != 0 {
		s.Len++
	}
	if s.Flags&packet.FlagSYN == 0 {
		return
	}
	s.Len++
	s.Scale = NoScale
	if shift, ok := p.WindowScale(b); ok {
		s.Scale = shift
	}
}
