package flow

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
)

// FuzzStep reads segments out of bytes, 20 for each, and checks what engines rely on.
func FuzzStep(f *testing.F) {
	f.Add(uint8(packet.ProtoTCP), []byte{})
	f.Fuzz(func(t *testing.T, proto uint8, b []byte) {
		var s State
		made := false
		for now := time.Duration(1); len(b) >= 20; now, b = now+1, b[20:] {
			seg := Segment{Bytes: uint32(b[19]), Seq: binary.BigEndian.Uint32(b),
				Ack:    binary.BigEndian.Uint32(b[4:]),
				Window: uint32(binary.BigEndian.Uint16(b[8:])), Flags: b[10], Scale: b[11] & 15,
				Chunk: b[12], Bits: b[13],
				Len: uint32(binary.BigEndian.Uint16(b[14:]))}
			if seg.Scale == 15 {
				seg.Scale = NoScale
			}
			from := int(b[16] & 1)
			if !made {
				s, made = New(packet.Proto(proto), &seg, now)
				continue
			}
			old := s
			r := s.Step(&seg, Dir(from), now, modeOf(b[17]&1 != 0))
			switch {
			case r != ResultHit && s != old:
				t.Fatalf("%v changed %+v to %+v", r, old, s)
			case s.Sides[1-from] != old.Sides[1-from]:
				t.Fatalf("a packet of side %d wrote the other", from)
			case r == ResultHit && s.Sides[from].Last != now:
				t.Fatalf("a hit that does not count: %+v", s)
			case b[17]&1 != 0 && (r == ResultBadRst || r == ResultBadAck || r == ResultBadWindow):
				t.Fatalf("liberal, yet %v", r)
			}
			if e := s; e.ICMPError(seg.Seq, Dir(from), 1, ModeStrict) == ResultUntouched &&
				e.Sides[from] != s.Sides[from] {
				t.Fatalf("an error touched the side that it is about")
			}
		}
	})
}
