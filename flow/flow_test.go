package flow

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/packet"
)

func TestKeyLayout(t *testing.T) {
	if n := unsafe.Sizeof(Key{}); n != 40 {
		t.Errorf("a key is %d bytes, the kernel engine's is 40", n)
	}
}

func TestKeyIsSymmetric(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		p := packet.Packet{Version: 6, Proto: packet.ProtoTCP}
		p.SrcIP = [16]byte{7: byte(rnd.IntN(2)), 15: byte(rnd.IntN(3))}
		p.DstIP = [16]byte{7: byte(rnd.IntN(2)), 15: byte(rnd.IntN(3))}
		p.Ports = rnd.Uint32N(3)<<16 | rnd.Uint32N(3)
		q := p
		q.SrcIP, q.DstIP = p.DstIP, p.SrcIP
		q.Ports = p.Ports<<16 | p.Ports>>16
		k, d, ok := KeyOf(&p, nil, 0)
		l, e, ok2 := KeyOf(&q, nil, 0)
		if !ok || !ok2 || k != l {
			t.Fatalf("%+v and %+v: %v %v %+v %+v", p, q, ok, ok2, k, l)
		}
		if same := p == q; same != (d == e) || same && d != EndLow {
			t.Fatalf("%+v: directions %v %v", p, d, e)
		}
		if less := k.Low().Compare(k.High()); less > 0 {
			t.Fatalf("%+v is not in canonical order", k)
		}
	}
}

func TestKeyFor(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.9:80"), netip.MustParseAddrPort("10.0.0.1:4000")
	k, d := KeyBetween(packet.ProtoTCP, a, b, 0)
	from, to := k.Ends(d)
	if d != EndHigh || from != a || to != b {
		t.Errorf("%v -> %v (%v)", from, to, d)
	}
}

func TestKeyNeedsAFlow(t *testing.T) {
	var bare packet.Packet // an ICMP error without a quote
	bare.Decode([]byte{0x45, 3: 28, 8: 64, 9: packet.ProtoICMP, 20: 3, 27: 0})
	for name, p := range map[string]packet.Packet{
		"malformed":      {Version: 4, Proto: packet.ProtoTCP, Reason: packet.ReasonTransport},
		"later fragment": {Version: 4, Proto: packet.ProtoUDP, Frag: packet.FragLater},
		"empty error":    bare,
	} {
		if k, _, ok := KeyOf(&p, nil, 0); ok {
			t.Errorf("%s has key %+v", name, k)
		}
	}
}

// TestStepProperties checks with random segments what engines rely on. A packet writes only its own
// side, and only a hit changes a state. Liberal mode drops nothing because of its numbers, and both
// modes have the same hits.
func TestStepProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 3000 {
		proto := []uint8{packet.ProtoTCP, packet.ProtoTCP, packet.ProtoSCTP,
			packet.ProtoUDP}[rnd.IntN(4)]
		first := randomSegment(rnd, packet.Proto(proto))
		s, ok := New(packet.Proto(proto), &first, 1)
		if !ok {
			continue
		}
		for now := range time.Duration(40) {
			seg, from, liberal := randomSegment(rnd, packet.Proto(proto)), rnd.IntN(2),
				rnd.IntN(4) == 0
			old, strict := s, s
			r := s.Step(&seg, Dir(from), now, modeOf(liberal))
			rs := strict.Step(&seg, Dir(from), now, ModeStrict)
			switch {
			case s.Sides[1-from] != old.Sides[1-from] || s.Proto != old.Proto ||
				s.Loose != old.Loose:
				t.Fatalf("round %d: %+v from %d wrote more than its side: %+v -> %+v", round, seg,
					from, old, s)
			case r != ResultHit && s != old:
				t.Fatalf("round %d: %v changed the state", round, r)
			case liberal && (r == ResultBadRst || r == ResultBadAck || r == ResultBadWindow):
				t.Fatalf("round %d: liberal, yet %v", round, r)
			case (r == ResultHit) != (rs == ResultHit):
				t.Fatalf("round %d: liberal %v, strict %v", round, r, rs)
			case r == ResultRecycle && s.Phase() == PhaseEstablished:
				t.Fatalf("round %d: %+v recycled an established state %+v", round, seg, s)
			case old.Phase() == PhaseReset && s.Phase() != PhaseReset:
				t.Fatalf("round %d: rose from the dead", round)
			}
		}
	}
}

// randomSegment draws from few numbers, so that many segments fit.
func randomSegment(rnd *rand.Rand, proto packet.Proto) Segment {
	s := Segment{Bytes: 40, Seq: rnd.Uint32N(6), Ack: rnd.Uint32N(6), Window: rnd.Uint32N(4),
		Scale: NoScale, Len: rnd.Uint32N(2)}
	if proto == packet.ProtoSCTP {
		s.Chunk, s.Bits = []uint8{0, 1, 2, 6, 14, NoChunk}[rnd.IntN(6)], uint8(rnd.IntN(2))
		return s
	}
	s.Flags = []uint8{flagSYN, flagSYN, flagSYN | flagACK, flagSYN | flagACK, flagACK, flagACK,
		flagACK, flagACK | flagFIN,
		flagRST, flagRST | flagACK, 0, flagSYN | flagFIN}[rnd.IntN(12)]
	if s.Flags&flagSYN != 0 {
		s.Len++
		if rnd.IntN(2) == 0 {
			s.Scale = uint8(rnd.IntN(15))
		}
	}
	if s.Flags&flagFIN != 0 {
		s.Len++
	}
	return s
}

// chunks of SCTP
const data, initiate, initAck, abort, cookie, complete = 0, 1, 2, 6, 10, 14

// step is a packet of an association, and what becomes of it.
type step struct {
	from        int
	chunk, bits uint8
	tag         uint32
	want        Result
	asks        uint32 // INIT, INIT ACK: the tag for the other end
}

// sctpCase is an association, and how it ends.
type sctpCase struct {
	name  string
	steps []step
	phase Phase
}

// asked is an association whose ends ask for the tags 70 and 80.
var asked = []step{{0, initiate, 0, 0, ResultHit, 70}, {1, initAck, 0, 70, ResultHit, 80},
	{0, cookie, 0, 80, ResultHit, 0}, {1, data, 0, 70, ResultHit, 0}}

func TestSCTP(t *testing.T) {
	shake := []step{{0, initiate, 0, 0, ResultHit, 0}, {1, initAck, 0, 70, ResultHit, 0},
		{0, cookie, 0, 80, ResultHit, 0},
		{1, data, 0, 70, ResultHit, 0}}
	for _, c := range []sctpCase{
		{"opening", shake[:1], PhaseOpening},
		{"association", shake, PhaseEstablished},
		{"wrong tags", append(shake[:4:4], step{0, data, 0, 81, ResultBadTag, 0},
			step{1, abort, 0, 71, ResultBadTag, 0}, step{0, data, 0, 80, ResultHit, 0}),
			PhaseEstablished},
		{"INIT of an open association",
			append(shake[:4:4], step{0, initiate, 0, 0, ResultUntouched, 0},
				step{1, initiate, 0, 0, ResultUntouched, 0}),
			PhaseEstablished},
		{"abort", append(shake[:4:4], step{1, abort, 0, 70, ResultHit, 0},
			step{0, data, 0, 80, ResultUntouched, 0},
			step{0, initiate, 0, 0, ResultRecycle, 0}), PhaseReset},
		{"reflected tag", append(shake[:4:4], step{1, abort, 1, 70, ResultBadTag, 0},
			step{1, abort, 1, 80, ResultHit, 0}), PhaseReset},
		{"shut down", append(shake[:4:4], step{0, complete, 0, 80, ResultHit, 0}), PhaseReset},
		{"reflected tag, peer unknown", []step{shake[0], {1, abort, 1, 5, ResultBadTag, 0}},
			PhaseOpening},
		{"reflected tag, opening", []step{asked[0], asked[1], {0, abort, 1, 71, ResultBadTag, 0},
			{0, abort, 1, 70, ResultHit, 0}}, PhaseReset},
		{"the tags that both asked for", asked, PhaseEstablished},
		{"blind chunks in between", []step{asked[0], {1, abort, 0, 71, ResultBadTag, 0},
			{1, initAck, 0, 71, ResultBadTag, 99}, {1, data, 0, 0, ResultBadTag, 0}, asked[1],
			{0, cookie, 0, 99, ResultBadTag, 0}, asked[2], asked[3]}, PhaseEstablished},
		{"a port without a server", []step{asked[0], {1, abort, 0, 70, ResultHit, 0}}, PhaseReset},
		{"INIT again, with another tag", []step{asked[0], {0, initiate, 0, 0, ResultHit, 72},
			{1, initAck, 0, 70, ResultHit, 80}, {1, initAck, 0, 72, ResultHit, 81},
			{0, cookie, 0, 81, ResultHit, 0}, {1, data, 0, 72, ResultHit, 0}}, PhaseEstablished},
		{"INIT again, answered twice", []step{asked[0], asked[0], asked[1],
			{1, initAck, 0, 70, ResultHit, 81}, asked[2], asked[3]}, PhaseEstablished},
		{"one end restarts", append(asked[:4:4], step{0, initiate, 0, 0, ResultHit, 75},
			step{1, data, 0, 70, ResultHit, 0}, step{1, initAck, 0, 75, ResultHit, 85},
			step{0, cookie, 0, 85, ResultHit, 0}, step{1, data, 0, 75, ResultHit, 0},
			step{0, data, 0, 85, ResultHit, 0}, step{0, data, 0, 86, ResultBadTag, 0}),
			PhaseEstablished},
		{"a blind INIT ends and moves nothing", append(asked[:4:4],
			step{1, initiate, 0, 0, ResultHit, 66}, step{0, data, 0, 80, ResultHit, 0},
			step{1, data, 0, 70, ResultHit, 0}, step{0, abort, 0, 66, ResultHit, 0},
			step{0, data, 0, 80, ResultHit, 0}, step{1, abort, 0, 66, ResultBadTag, 0}),
			PhaseEstablished},
	} {
		c.run(t)
	}
}

// TestBlindINITs: forged INITs in the name of an end neither end an association that opens, nor
// keep it from opening. Their receiver answers them, and the answers pass.
func TestBlindINITs(t *testing.T) {
	for _, c := range []sctpCase{
		{"while it opens", []step{asked[0], {0, initiate, 0, 0, ResultHit, 66}, asked[1],
			{1, initAck, 0, 66, ResultHit, 67}, {0, initiate, 0, 0, ResultHit, 68},
			{1, initAck, 0, 68, ResultHit, 69}, asked[2], asked[3],
			{0, data, 0, 80, ResultHit, 0}, {1, abort, 0, 70, ResultHit, 0}}, PhaseReset},
		{"before it opens", []step{{0, initiate, 0, 0, ResultHit, 66},
			{1, initAck, 0, 66, ResultHit, 67}, asked[0], asked[1], asked[2],
			{0, initiate, 0, 0, ResultHit, 66}, {1, initAck, 0, 66, ResultHit, 68}, asked[3],
			{0, data, 0, 80, ResultHit, 0}}, PhaseEstablished},
		{"of the other end", []step{asked[0], {1, initiate, 0, 0, ResultHit, 66},
			{0, initAck, 0, 66, ResultHit, 70}, asked[1], {1, initiate, 0, 0, ResultHit, 67},
			{0, initAck, 0, 67, ResultHit, 70}, asked[2], {0, abort, 0, 66, ResultHit, 0},
			asked[3], {0, data, 0, 80, ResultHit, 0}}, PhaseEstablished},
		{"that are refused", []step{asked[0], {0, initiate, 0, 0, ResultHit, 66},
			{1, abort, 0, 66, ResultHit, 0}, asked[1], {0, initiate, 0, 0, ResultHit, 67},
			{1, abort, 0, 67, ResultHit, 0}, {0, abort, 1, 67, ResultHit, 0}, asked[2],
			asked[3]}, PhaseEstablished},
	} {
		c.run(t)
	}
}

// run plays the packets, the first of which makes the state.
func (c sctpCase) run(t *testing.T) {
	t.Helper()
	var s State
	for i, st := range c.steps {
		seg := Segment{Seq: st.tag, Chunk: st.chunk, Bits: st.bits, Bytes: 48, Init: st.asks}
		if i == 0 {
			s, _ = New(packet.ProtoSCTP, &seg, 1)
			continue
		}
		if r := s.Step(&seg, Dir(st.from), time.Duration(i), ModeStrict); r != st.want {
			t.Errorf("%s: step %d: %v, want %v", c.name, i, r, st.want)
		}
	}
	if s.Phase() != c.phase {
		t.Errorf("%s: phase %v, want %v", c.name, s.Phase(), c.phase)
	}
}

func TestICMPError(t *testing.T) {
	s := play(t, false, open)
	for _, c := range []struct {
		seq     uint32
		q       int
		liberal bool
		want    Result
	}{
		{1000, 0, false, ResultBadICMP}, {1001, 0, false, ResultUntouched},
		{999, 0, false, ResultBadICMP},
		{1002, 0, false, ResultBadICMP},
		{5000, 1, false, ResultBadICMP}, {5001, 1, false, ResultUntouched},
		{1000, 1, false, ResultBadICMP},
		{1002, 0, true, ResultUntouched},
	} {
		before := s
		if r := s.ICMPError(c.seq, Dir(c.q), 56, modeOf(c.liberal)); r != c.want {
			t.Errorf("%+v: %v", c, r)
		}
		if c.want == ResultUntouched {
			before.Sides[1-c.q].Packets++
			before.Sides[1-c.q].Bytes += 56
		}
		if s != before {
			t.Errorf("%+v: state %+v, want %+v", c, s, before)
		}
	}
	syn := play(t, false, "a S 1 0 0 9")
	if r := syn.ICMPError(0, 1, 56, ModeStrict); r != ResultBadICMP {
		t.Errorf("an error about a packet that was never sent: %v", r)
	}
	if r := syn.ICMPError(1, 0, 56, ModeStrict); r != ResultUntouched {
		t.Errorf("an error about the SYN: %v", r)
	}
	loose := play(t, false, "a A 1 1 0 9")
	if r := loose.ICMPError(999, 0, 56, ModeStrict); r != ResultUntouched {
		t.Errorf("loose: %v", r)
	}
}

func TestLifetimes(t *testing.T) {
	to := DefaultTimeouts()
	side := func(f SideFlags, ack, end uint32) Side {
		return Side{Flags: f, Ack: ack, End: end, Last: 5}
	}
	all := SideSeen | SideSyn | SideAcked
	for _, c := range []struct {
		name  string
		state State
		want  time.Duration
	}{
		{"tcp opening", State{Proto: 6, Sides: [2]Side{side(SideSeen|SideSyn, 0, 1)}},
			20 * time.Second},
		{"tcp established", State{Proto: 6,
			Sides: [2]Side{side(all|SideProved, 1, 1), side(all, 1, 1)}}, 300 * time.Second},
		{"tcp half closed", State{Proto: 6,
			Sides: [2]Side{side(all|SideProved|SideFin, 1, 2), side(all, 2, 1)}},
			300 * time.Second},
		{"tcp closing", State{Proto: 6,
			Sides: [2]Side{side(all|SideFin, 1, 2), side(all|SideFin, 2, 2)}},
			20 * time.Second},
		{"tcp closed", State{Proto: 6,
			Sides: [2]Side{side(all|SideFin, 2, 2), side(all|SideFin, 2, 2)}},
			time.Second},
		{"tcp reset", State{Proto: 6, Sides: [2]Side{side(all, 1, 1), side(all|SideRst, 1, 1)}},
			time.Second},
		{"udp one way", State{Proto: 17, Sides: [2]Side{side(SideSeen, 0, 0)}}, 10 * time.Second},
		{"udp both ways", State{Proto: 17,
			Sides: [2]Side{side(SideSeen, 0, 0), side(SideSeen, 0, 0)}},
			30 * time.Second},
		{"udp proved", State{Proto: 17,
			Sides: [2]Side{side(SideSeen|SideProved, 0, 0), side(SideSeen, 0, 0)}},
			30 * time.Second},
		{"udp-lite both ways", State{Proto: 136,
			Sides: [2]Side{side(SideSeen, 0, 0), side(SideSeen, 0, 0)}}, 30 * time.Second},
		{"sctp one way", State{Proto: 132, Sides: [2]Side{side(SideSeen, 0, 0)}}, 20 * time.Second},
		{"sctp both ways", State{Proto: 132,
			Sides: [2]Side{side(SideSeen, 0, 0), side(SideSeen, 0, 0)}},
			20 * time.Second},
		{"sctp proved", State{Proto: 132,
			Sides: [2]Side{side(SideSeen|SideProved, 0, 0), side(SideSeen, 0, 0)}},
			300 * time.Second},
		{"sctp aborted", State{Proto: 132,
			Sides: [2]Side{side(SideSeen|SideRst, 0, 0), side(SideSeen, 0, 0)}},
			time.Second},
		{"icmp", State{Proto: 1, Sides: [2]Side{side(SideSeen, 0, 0), side(SideSeen, 0, 0)}},
			5 * time.Second},
		{"gre", State{Proto: 47, Sides: [2]Side{side(SideSeen, 0, 0)}}, 5 * time.Second},
	} {
		if got := c.state.Lifetime(&to); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := c.state.Deadline(&to); got != 5+c.want {
			t.Errorf("%s: deadline %d", c.name, got)
		}
	}
}

// TestProof: a flow of any protocol is established when the side that began it has sent again after
// an answer. Another INIT does not establish an SCTP association.
func TestProof(t *testing.T) {
	for _, proto := range []uint8{17, 136, 1, 58, 47, 132} {
		first, again := Segment{Chunk: chunkInit, Bytes: 40}, Segment{Chunk: 10, Seq: 7, Bytes: 40}
		s, _ := New(packet.Proto(proto), &first, 1)
		want := func(what string, phase Phase) {
			t.Helper()
			if s.Phase() != phase || s.HalfOpen() != (phase != PhaseEstablished) {
				t.Errorf("protocol %d, %s: %v, half-open %v", proto, what, s.Phase(), s.HalfOpen())
			}
		}
		want("one packet", PhaseOpening)
		s.Step(&first, DirOriginal, 2, ModeStrict)
		want("two packets", PhaseOpening)
		for range 3 {
			s.Step(&Segment{Chunk: 2, Seq: 9, Bytes: 40}, DirReply, 3, ModeStrict)
			want("an answer", PhaseAnswered)
		}
		if proto == 132 {
			s.Step(&first, DirOriginal, 4, ModeStrict)
			want("another INIT", PhaseAnswered)
		}
		s.Step(&again, DirOriginal, 5, ModeStrict)
		want("the side that began again", PhaseEstablished)
	}
}

func modeOf(liberal bool) Mode {
	if liberal {
		return ModeLiberal
	}
	return ModeStrict
}
