package soft

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

func TestEntryIsTwoCacheLines(t *testing.T) {
	if n := unsafe.Sizeof(entry{}); n != 128 {
		t.Errorf("%d bytes", n)
	}
	if n := unsafe.Offsetof(entry{}.sides); n != 64 {
		t.Errorf("the sides begin at %d", n)
	}
	tb := newTable(1000, [4]uint64{})
	if a := uintptr(unsafe.Pointer(&tb.entries[0])); a%128 != 0 {
		t.Errorf("entries begin at %#x", a)
	}
}

// TestPackKeepsSides packs and unpacks states that random segments have made: nothing may get lost.
func TestPackKeepsSides(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		seg := flow.Segment{Flags: packet.FlagSYN, Seq: rnd.Uint32(), Window: rnd.Uint32N(65536),
			Scale: uint8(rnd.IntN(15)),
			Len:   1, Bytes: 40}
		s, ok := flow.New(packet.ProtoTCP, &seg, 1)
		if !ok {
			t.Fatal("no state")
		}
		answer := flow.Segment{Flags: packet.FlagSYN | packet.FlagACK, Seq: rnd.Uint32(),
			Ack: seg.Seq + 1, Window: rnd.Uint32N(65536), Scale: uint8(rnd.IntN(15)),
			Len: 1, Bytes: 40}
		if r := s.Step(&answer, flow.DirReply, 2, flow.ModeStrict); r != flow.ResultHit {
			t.Fatal(r)
		}
		for i := range time.Duration(6) {
			from := rnd.IntN(2)
			d, p := &s.Sides[from], &s.Sides[1-from]
			data := flow.Segment{Flags: packet.FlagACK, Seq: d.End, Ack: p.End,
				Window: rnd.Uint32N(65536), Bytes: 1500}
			s.Step(&data, flow.Dir(from), 3+i, flow.ModeStrict)
			var e entry
			if s.Loose {
				e.id = infoLoose
			}
			e.id |= uint64(packet.ProtoTCP) << idProto
			e.storeSide(&s.Sides[0], 0)
			e.storeSide(&s.Sides[1], 1)
			var got flow.State
			e.load(&got)
			if got != s {
				t.Fatalf("packed\n%+v, unpacked\n%+v", s, got)
			}
			if w := e.sides[from].window(); w != s.Sides[from].Win {
				t.Fatalf("window %d, want %d", w, s.Sides[from].Win)
			}
		}
	}
}

func TestKeyOfEntry(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		k := flow.Key{LowHi: rnd.Uint64(), LowLo: rnd.Uint64(), HighHi: rnd.Uint64(),
			HighLo: rnd.Uint64(),
			Ports:  rnd.Uint32(), Proto: packet.Proto(rnd.Uint32()), Flow: uint8(rnd.Uint32())}
		var e entry
		e.setKey(&k, 77)
		if e.key() != k || !e.is(&k) || e.tag() != 77 {
			t.Fatalf("%+v became %+v", k, e.key())
		}
		l := k
		l.Flow++
		if e.is(&l) {
			t.Fatal("the flow name does not count")
		}
	}
}

// TestPacketsAreCacheLines checks the layout of Worker.ps: a packet that straddles two lines costs
// a nanosecond more.
func TestPacketsAreCacheLines(t *testing.T) {
	e, err := New(Options{Options: testOptions(), Workers: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range e.workers {
		if at := uintptr(unsafe.Pointer(w.ps)); at%64 != 0 || unsafe.Sizeof(w.ps[0]) != 64 {
			t.Errorf("worker %d: packets of %d bytes from %#x on", i, unsafe.Sizeof(w.ps[0]), at)
		}
	}
}
