package flow

import "github.com/weirnet/weir/packet"

// Slack is how far behind the newest data or acknowledgement a segment may lie however small the
// window is: one unscaled window and a little more, as in pf's and Linux's trackers (Rooij, "Real
// stateful TCP packet filtering", 2001).
const Slack = 66000

const (
	flagFIN = packet.FlagFIN
	flagSYN = packet.FlagSYN
	flagRST = packet.FlagRST
	flagACK = packet.FlagACK
)

// before reports a < b modulo 2^32.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// between reports lo <= x <= hi modulo 2^32.
func between(lo, x, hi uint32) bool { return !before(x, lo) && !before(hi, x) }

// badFlags reports flags that no TCP sends: none of SYN, ACK and RST, or SYN with FIN or RST.
func badFlags(f uint8) bool {
	return f&(flagSYN|flagACK|flagRST) == 0 || f&flagSYN != 0 && f&(flagFIN|flagRST) != 0
}

// stepTCP is section 8 of docs/design/0003-evaluation.md; the numbers are those of its list.
func (s *State) stepTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	f := seg.Flags
	if badFlags(f) { // 1
		return BadFlags
	}
	if s.closed() { // 2
		if f&(flagSYN|flagACK) == flagSYN {
			return Recycle
		}
		return Untouched
	}
	if f&(flagSYN|flagACK) == flagSYN { // 3
		return s.synTCP(seg, from, now)
	}
	if s.loose() { // 4
		return s.looseTCP(seg, from, now)
	}
	if d.Flags&Seen == 0 { // 5
		return s.firstTCP(seg, from, now)
	}
	if f&flagRST != 0 { // 6
		return s.resetTCP(seg, from, now)
	}
	// 7
	if f&flagACK == 0 {
		return BadFlags
	}
	if p.Flags&Seen == 0 {
		return BadAck
	}
	if f&flagSYN != 0 && s.answersAgain(seg, from) {
		d.Flags &^= Acked | Fin | Scaled
		d.Scale = 0
		d.begin(seg, now)
		return Hit
	}
	edge := p.Edge
	if p.Flags&Acked == 0 {
		edge = d.Start + 1 + p.Win
	}
	end := seg.Seq + seg.Len
	if before(edge, seg.Seq) || before(edge+1, end) || before(end, d.End-max(p.Win, Slack)) {
		return BadWindow
	}
	if before(p.End, seg.Ack) || before(seg.Ack, p.End-max(d.Win, Slack)) {
		return BadAck
	}
	var scale uint8
	if d.Flags&p.Flags&Scaled != 0 && f&flagSYN == 0 {
		scale = d.Scale
	}
	d.advance(seg, scale, now) // 8
	// of mid-stream the start is not known
	if from == 0 && (s.Loose || !before(seg.Ack, p.Start+1)) {
		d.Flags |= Proved
	}
	return Hit
}

// loose reports a state of which the numbers of a side are still unknown.
func (s *State) loose() bool { return s.Loose && s.Sides[0].Flags&s.Sides[1].Flags&Acked == 0 }

// near is how far a first segment of one side may lie from what the other side has acknowledged,
// and its acknowledgement from what that has sent. Who knows neither number meets both once in
// 16,384. A flow with more than that on its way stays loose until it has less.
const near = 1 << 24

// looseScale is the scale of windows whose option was not seen: the largest, RFC 7323
// 2.3.
const looseScale = 14

// looseTCP evaluates a segment of a state of which the numbers of a side are unknown.
func (s *State) looseTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case seg.Flags&flagRST != 0:
		if d.Flags&Acked != 0 && seg.Seq == d.End || p.Flags&Acked != 0 && seg.Seq == p.Ack {
			d.Flags |= Rst
			d.touch(seg, now)
			return Hit
		}
		return Untouched
	case p.Flags&Acked == 0: // nothing vouches for what d has said before: the newest counts
		d.pickUp(seg, now)
	case !within(seg.Seq, p.Ack) || !within(seg.Ack, p.End):
		return Untouched
	default:
		d.pickUp(seg, now)
		if seg.Flags&flagFIN != 0 {
			d.Flags |= Fin
		}
		s.prove(from)
	}
	return Hit
}

// within reports that two numbers are near.
func within(a, b uint32) bool { return a-b+near <= 2*near }

// pickUp initialises a side from a segment in mid-stream. A FIN is believed when the numbers of the
// other side agree.
func (d *Side) pickUp(seg *Segment, now int64) {
	d.Start, d.End, d.Win, d.Scale = seg.Seq, seg.Seq+seg.Len, seg.Window<<looseScale, looseScale
	d.Flags |= Scaled
	if seg.Flags&flagACK != 0 {
		d.Ack, d.Edge = seg.Ack, seg.Ack+d.Win
		d.Flags |= Acked
	}
	if seg.Flags&flagRST != 0 {
		d.Flags |= Rst
	}
	d.touch(seg, now)
}

// answersAgain reports a SYN and ACK that takes the place of the one before, of which the side that
// began has acknowledged nothing: that was lost, and its sender has begun again or made another SYN
// cookie.
func (s *State) answersAgain(seg *Segment, from int) bool {
	d, p := &s.Sides[from], &s.Sides[1-from]
	return from == 1 && p.Flags&(Acked|Proved) == 0 && seg.Seq != d.Start &&
		before(p.Start, seg.Ack) && !before(p.End, seg.Ack)
}

// synTCP evaluates a SYN without ACK for an open state.
func (s *State) synTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case d.Flags&Syn != 0 && p.Flags&Seen == 0:
		if seg.Seq != d.Start {
			return Recycle
		}
		d.touch(seg, now)
		return Hit
	case d.Flags&Seen == 0 && !s.Loose:
		d.begin(seg, now)
		return Hit
	}
	return Untouched
}

// firstTCP evaluates the first segment of a side, which is not a bare SYN.
func (s *State) firstTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	f := seg.Flags
	switch {
	case f&flagRST != 0:
		if f&flagACK == 0 || seg.Ack != p.End {
			return BadRst
		}
	case f&(flagSYN|flagACK) == flagSYN|flagACK:
		if !before(p.Start, seg.Ack) || before(p.End, seg.Ack) {
			return BadAck
		}
	case f&flagACK != 0:
		return Untouched
	default:
		return BadWindow
	}
	d.begin(seg, now)
	return Hit
}

// resetTCP evaluates an RST from a side that was seen before.
func (s *State) resetTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case seg.Seq == d.End, p.Flags&Acked != 0 && seg.Seq == p.Ack:
		d.Flags |= Rst
		d.touch(seg, now)
		return Hit
	case p.Flags&Seen == 0, p.Flags&Acked != 0 && between(p.Ack, seg.Seq, p.Edge):
		return Untouched
	}
	return BadRst
}

// begin initialises a side from its first segment.
func (d *Side) begin(seg *Segment, now int64) {
	d.Start, d.End, d.Win = seg.Seq, seg.Seq+seg.Len, seg.Window
	if seg.Flags&flagSYN != 0 {
		d.Flags |= Syn
		if seg.Scale != NoScale {
			d.Flags |= Scaled
			d.Scale = seg.Scale
		}
	}
	if seg.Flags&flagACK != 0 {
		d.Flags |= Acked
		d.Ack, d.Edge = seg.Ack, seg.Ack+seg.Window
	}
	if seg.Flags&flagFIN != 0 {
		d.Flags |= Fin
	}
	if seg.Flags&flagRST != 0 {
		d.Flags |= Rst
	}
	d.touch(seg, now)
}

// advance moves the numbers of a side by a valid segment.
func (d *Side) advance(seg *Segment, scale uint8, now int64) {
	if end := seg.Seq + seg.Len; before(d.End, end) {
		d.End = end
	}
	win := seg.Window << (scale & 15)
	d.Win = max(d.Win, win)
	if seg.Flags&flagACK != 0 {
		edge := seg.Ack + win
		if d.Flags&Acked == 0 {
			d.Ack, d.Edge = seg.Ack, edge
		}
		if before(d.Ack, seg.Ack) {
			d.Ack = seg.Ack
		}
		if before(d.Edge, edge) {
			d.Edge = edge
		}
		d.Flags |= Acked
	}
	if seg.Flags&flagFIN != 0 {
		d.Flags |= Fin
	}
	d.touch(seg, now)
}

// closed reports whether a TCP or SCTP state is over: RST on a side, or both FINs acknowledged.
func (s *State) closed() bool {
	a, b := &s.Sides[0], &s.Sides[1]
	both := a.Flags & b.Flags
	return (a.Flags|b.Flags)&Rst != 0 ||
		both&(Fin|Acked) == Fin|Acked && !before(b.Ack, a.End) && !before(a.Ack, b.End)
}
