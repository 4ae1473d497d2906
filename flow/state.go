package flow

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/packet"
)

// Side is what is known about one end of a flow. Packets from one end write only the Side of that
// end, so two CPUs that handle the two directions write to separate cache lines.
type Side struct {
	Last    time.Duration // when the last packet that counted came
	Packets uint64
	Bytes   uint64 // IP lengths
	Start   uint32 // TCP: initial sequence number; SCTP: verification tag used by this side
	// SCTP: End, Ack and Edge are tags that this side has asked for, see asked
	End   uint32 // TCP: highest SEQ+LEN sent
	Ack   uint32 // TCP: highest acknowledgement sent
	Edge  uint32 // TCP: highest ACK + scaled window sent
	Win   uint32 // TCP: largest scaled window sent
	Flags SideFlags
	Scale uint8 // TCP: window scale, 0..14
}

// SideFlags are facts about one end.
type SideFlags uint8

// The facts.
const (
	SideSeen   SideFlags = 1 << iota // a packet of this side counted
	SideSyn                          // Start is valid
	SideAcked                        // Ack and Edge are valid; SCTP: has asked for a tag
	SideFin                          // sent a FIN: End is the sequence number after it
	SideRst                          // sent a valid RST (SCTP: ABORT or SHUTDOWN COMPLETE)
	SideScaled                       // its SYN carried the window scale option
	// side 0: it has sent again after an answer; TCP: has acknowledged the other's SYN. Stored,
	// since sequence numbers wrap around
	SideProved
)

// State is a live flow as the state machine sees it. Side 0 is the one that made the state.
type State struct {
	Proto packet.Proto
	Loose bool // made in mid-stream: strict once the numbers of both sides are known
	Sides [2]Side
}

// Result is what a packet that found a state does to it, and whether it is dropped.
type Result uint8

// The results.
const (
	ResultHit       Result = iota // the packet counted: its side was updated
	ResultUntouched               // the rule decides, the state is unchanged
	// the packet begins a new flow on the same ports: remove the state, treat as not found
	ResultRecycle
	ResultBadFlags  // drop: reason tcp-flags
	ResultBadRst    // drop: reason tcp-rst
	ResultBadAck    // drop: reason tcp-ack
	ResultBadWindow // drop: reason tcp-window
	ResultBadTag    // drop: reason sctp-vtag
	ResultBadICMP   // drop: reason icmp-seq
)

// String returns the name of the result.
func (r Result) String() string {
	names := [...]string{"hit", "untouched", "recycle", "bad-flags", "bad-rst", "bad-ack",
		"bad-window", "bad-tag", "bad-icmp"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Drops reports whether the packet has to be dropped.
func (r Result) Drops() bool { return r >= ResultBadFlags }

// New returns the state that a packet of protocol proto makes. ok is false when it can make none: a
// TCP segment with impossible flags, which Step would drop with ResultBadFlags.
//
// A TCP segment other than a SYN without ACK makes a loose state.
func New(proto packet.Proto, seg *Segment, now time.Duration) (s State, ok bool) {
	ok = s.Init(proto, seg, now)
	return s, ok
}

// Init is New in place.
func (s *State) Init(proto packet.Proto, seg *Segment, now time.Duration) (ok bool) {
	*s = State{Proto: proto}
	d := &s.Sides[0]
	switch proto {
	case packet.ProtoTCP:
		if badFlags(seg.Flags) {
			return false
		}
		s.Loose = seg.Flags&(packet.FlagSYN|packet.FlagACK) != packet.FlagSYN
		if s.Loose {
			d.pickUp(seg, now)
		} else {
			d.begin(seg, now)
		}
		return true
	case packet.ProtoSCTP:
		d.tag(&s.Sides[1], seg)
		if seg.Chunk == chunkInit {
			d.ask(seg)
		} else {
			d.answer(&s.Sides[1], seg)
		}
		if seg.ends() {
			d.Flags |= SideRst
		}
	}
	d.touch(seg, now)
	return true
}

// Mode selects what happens to a TCP packet whose sequence numbers do not fit.
type Mode uint8

// The modes.
const (
	ModeStrict  Mode = iota // it is dropped
	ModeLiberal             // it passes, and the state stays as it is
)

// Step updates the state with a packet of direction d and returns what to do with the packet. Only
// ResultHit changes the state, and only the side that sent the packet. In ModeLiberal a packet that
// would be dropped because of its numbers is ResultUntouched instead.
//
// The caller must have checked that the state has not expired.
func (s *State) Step(seg *Segment, d Dir, now time.Duration, mode Mode) Result {
	switch s.Proto {
	case packet.ProtoTCP:
		r := s.stepTCP(seg, int(d&1), now)
		if mode == ModeLiberal && r > ResultBadFlags {
			return ResultUntouched
		}
		return r
	case packet.ProtoSCTP:
		return s.stepSCTP(seg, int(d&1), now)
	}
	s.Sides[d&1].touch(seg, now)
	s.prove(int(d & 1))
	return ResultHit
}

// prove sets SideProved if a packet of side d that counts shows that side 0 has received an answer.
func (s *State) prove(d int) {
	if d == 0 && s.Sides[1].Flags&SideSeen != 0 {
		s.Sides[0].Flags |= SideProved
	}
}

// ICMPError evaluates an ICMP error that quotes a packet of direction q: seq is the quoted sequence
// number. An error changes only the counters of the side that it comes from: the one that packets
// of direction q go to.
func (s *State) ICMPError(seq uint32, q Dir, bytes uint32, mode Mode) Result {
	if s.Proto == packet.ProtoTCP && !s.loose() && mode != ModeLiberal {
		side, other := &s.Sides[q&1], &s.Sides[1-q&1]
		first := side.Start
		// the start may lie more than half of the sequence space back
		if other.Flags&SideAcked != 0 {
			first = other.Ack
		}
		if side.Flags&SideSeen == 0 || !between(first, seq, side.End) {
			return ResultBadICMP
		}
	}
	from := &s.Sides[1-q&1]
	from.Packets++
	from.Bytes += uint64(bytes)
	return ResultUntouched
}

// touch counts a packet.
func (d *Side) touch(seg *Segment, now time.Duration) {
	d.Flags |= SideSeen
	d.Last = now
	d.Packets++
	d.Bytes += uint64(seg.Bytes)
}
