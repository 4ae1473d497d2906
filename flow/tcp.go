package flow

import (
	"time"

	"github.com/weirnet/weir/packet"
)

// Slack is how far behind the newest data or acknowledgement a segment may be even if the window is
// small. It is one unscaled window and a little more, as in pf's and Linux's trackers (Rooij, "Real
// stateful TCP packet filtering", 2001).
const Slack = 66000

const (
	flagFIN = packet.FlagFIN
	flagSYN = packet.FlagSYN
	flagRST = packet.FlagRST
	flagACK = packet.FlagACK
)

// before reports whether a < b modulo 2^32.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// between reports whether lo <= x <= hi modulo 2^32.
func between(lo, x, hi uint32) bool { return !before(x, lo) && !before(hi, x) }

// badFlags reports whether no TCP sends flags f: none of SYN, ACK and RST, or SYN with FIN or RST.
func badFlags(f uint8) bool {
	return f&(flagSYN|flagACK|flagRST) == 0 || f&flagSYN != 0 && f&(flagFIN|flagRST) != 0
}

// stepTCP implements section 8 of docs/design/0003-evaluation.md; the numbers are those of its
// list.
func (s *State) stepTCP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	f := seg.Flags
	if badFlags(f) { // 1
		return ResultBadFlags
	}
	if s.closed() { // 2
		if f&(flagSYN|flagACK) == flagSYN {
			return ResultRecycle
		}
		return ResultUntouched
	}
	if f&(flagSYN|flagACK) == flagSYN { // 3
		return s.synTCP(seg, from, now)
	}
	if s.loose() { // 4
		return s.looseTCP(seg, from, now)
	}
	if d.Flags&SideSeen == 0 { // 5
		return s.firstTCP(seg, from, now)
	}
	if f&flagRST != 0 { // 6
		return s.resetTCP(seg, from, now)
	}
	// 7
	if f&flagACK == 0 {
		return ResultBadFlags
	}
	if p.Flags&SideSeen == 0 {
		return ResultBadAck
	}
	if f&flagSYN != 0 && s.answersAgain(seg, from) {
		d.Flags &^= SideAcked | SideFin | SideScaled
		d.Scale = 0
		d.begin(seg, now)
		return ResultHit
	}
	edge := p.Edge
	if p.Flags&SideAcked == 0 {
		edge = d.Start + 1 + p.Win
	}
	end := seg.Seq + seg.Len
	if before(edge, seg.Seq) || before(edge+1, end) || before(end, d.End-max(p.Win, Slack)) {
		return ResultBadWindow
	}
	if before(p.End, seg.Ack) || before(seg.Ack, p.End-max(d.Win, Slack)) {
		return ResultBadAck
	}
	var scale uint8
	if d.Flags&p.Flags&SideScaled != 0 && f&flagSYN == 0 {
		scale = d.Scale
	}
	d.advance(seg, scale, now) // 8
	// p.Start is not known in mid-stream
	if from == 0 && (s.Loose || !before(seg.Ack, p.Start+1)) {
		d.Flags |= SideProved
	}
	return ResultHit
}

// loose reports whether the numbers of a side are still unknown.
func (s *State) loose() bool { return s.Loose && s.Sides[0].Flags&s.Sides[1].Flags&SideAcked == 0 }

// near is how far the first segment of a side may lie from what the other side has acknowledged,
// and its acknowledgement from what the other side has sent. A blind guess satisfies both once in
// 16,384 times. A flow with more bytes than that in flight stays loose until it has fewer.
const near = 1 << 24

// looseScale is the window scale when the option was not seen: the largest (RFC 7323 2.3).
const looseScale = 14

// looseTCP evaluates a segment of a state in which the numbers of a side are unknown.
func (s *State) looseTCP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case seg.Flags&flagRST != 0:
		// the numbers of d itself are not confirmed
		if p.Flags&SideAcked != 0 && seg.Seq == p.Ack {
			d.Flags |= SideRst
			d.touch(seg, now)
			return ResultHit
		}
		return ResultUntouched
	case p.Flags&SideAcked == 0: // the numbers of d are not confirmed: the newest count
		d.pickUp(seg, now)
	case !within(seg.Seq, p.Ack) || !within(seg.Ack, p.End):
		return ResultUntouched
	// one of the two has sent more than was seen: the next segments would be refused
	case before(p.End, seg.Ack) || before(seg.Seq+seg.Len, p.Ack):
		return ResultUntouched
	default:
		d.pickUp(seg, now)
		if seg.Flags&flagFIN != 0 {
			d.Flags |= SideFin
		}
		s.prove(from)
	}
	return ResultHit
}

// within reports whether two numbers are near.
func within(a, b uint32) bool { return a-b+near <= 2*near }

// newest returns what replaces a number that is not confirmed: the new one, unless that is at most
// Slack less. Then its segment came out of order.
func newest(old, is uint32) uint32 {
	if old-is <= Slack {
		return old
	}
	return is
}

// pickUp initialises a side from a segment in mid-stream. It does not set SideFin: the caller does,
// when the numbers of the other side agree.
func (d *Side) pickUp(seg *Segment, now time.Duration) {
	end, win := seg.Seq+seg.Len, seg.Window<<looseScale
	ack, edge := seg.Ack, seg.Ack+win
	if d.Flags&SideAcked != 0 {
		end, ack, edge = newest(d.End, end), newest(d.Ack, ack), newest(d.Edge, edge)
	}
	d.Start, d.End, d.Win, d.Scale = seg.Seq, end, win, looseScale
	d.Flags |= SideScaled
	if seg.Flags&flagACK != 0 {
		d.Ack, d.Edge = ack, edge
		d.Flags |= SideAcked
	}
	if seg.Flags&flagRST != 0 {
		d.Flags |= SideRst
	}
	d.touch(seg, now)
}

// answersAgain reports whether a SYN and ACK replaces an earlier one, which the side that began has
// not acknowledged. The earlier one was lost, and its sender has begun again or made another SYN
// cookie.
func (s *State) answersAgain(seg *Segment, from int) bool {
	d, p := &s.Sides[from], &s.Sides[1-from]
	return from == 1 && p.Flags&(SideAcked|SideProved) == 0 && seg.Seq != d.Start &&
		before(p.Start, seg.Ack) && !before(p.End, seg.Ack)
}

// synTCP evaluates a SYN without ACK for an open state.
func (s *State) synTCP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case d.Flags&SideSyn != 0 && p.Flags&SideSeen == 0:
		if seg.Seq != d.Start {
			return ResultRecycle
		}
		d.touch(seg, now)
		return ResultHit
	case d.Flags&SideSeen == 0 && !s.Loose:
		d.begin(seg, now)
		return ResultHit
	}
	return ResultUntouched
}

// firstTCP evaluates the first segment of a side, which is not a bare SYN.
func (s *State) firstTCP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	f := seg.Flags
	switch {
	case f&flagRST != 0:
		if f&flagACK == 0 || seg.Ack != p.End {
			return ResultBadRst
		}
	case f&(flagSYN|flagACK) == flagSYN|flagACK:
		if !before(p.Start, seg.Ack) || before(p.End, seg.Ack) {
			return ResultBadAck
		}
	case f&flagACK != 0:
		return ResultUntouched
	default:
		return ResultBadWindow
	}
	d.begin(seg, now)
	return ResultHit
}

// resetTCP evaluates an RST from a side that was seen before.
func (s *State) resetTCP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case seg.Seq == d.End, p.Flags&SideAcked != 0 && seg.Seq == p.Ack:
		d.Flags |= SideRst
		d.touch(seg, now)
		return ResultHit
	case p.Flags&SideSeen == 0, p.Flags&SideAcked != 0 && between(p.Ack, seg.Seq, p.Edge):
		return ResultUntouched
	}
	return ResultBadRst
}

// begin initialises a side from its first segment.
func (d *Side) begin(seg *Segment, now time.Duration) {
	d.Start, d.End, d.Win = seg.Seq, seg.Seq+seg.Len, seg.Window
	if seg.Flags&flagSYN != 0 {
		d.Flags |= SideSyn
		if seg.Scale != NoScale {
			d.Flags |= SideScaled
			d.Scale = seg.Scale
		}
	}
	if seg.Flags&flagACK != 0 {
		d.Flags |= SideAcked
		d.Ack, d.Edge = seg.Ack, seg.Ack+seg.Window
	}
	if seg.Flags&flagFIN != 0 {
		d.Flags |= SideFin
	}
	if seg.Flags&flagRST != 0 {
		d.Flags |= SideRst
	}
	d.touch(seg, now)
}

// advance updates the numbers of a side with a valid segment.
func (d *Side) advance(seg *Segment, scale uint8, now time.Duration) {
	if end := seg.Seq + seg.Len; before(d.End, end) {
		d.End = end
	}
	win := seg.Window << (scale & 15)
	d.Win = max(d.Win, win)
	if seg.Flags&flagACK != 0 {
		edge := seg.Ack + win
		if d.Flags&SideAcked == 0 {
			d.Ack, d.Edge = seg.Ack, edge
		}
		if before(d.Ack, seg.Ack) {
			d.Ack = seg.Ack
		}
		if before(d.Edge, edge) {
			d.Edge = edge
		}
		d.Flags |= SideAcked
	}
	if seg.Flags&flagFIN != 0 {
		d.Flags |= SideFin
	}
	d.touch(seg, now)
}

// closed reports whether a TCP or SCTP state is over: RST on a side, or both FINs acknowledged.
func (s *State) closed() bool {
	a, b := &s.Sides[0], &s.Sides[1]
	both := a.Flags & b.Flags
	return (a.Flags|b.Flags)&SideRst != 0 ||
		both&(SideFin|SideAcked) == SideFin|SideAcked && !before(b.Ack, a.End) &&
			!before(a.Ack, b.End)
}
