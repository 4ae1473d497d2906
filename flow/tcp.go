package flow

import "github.com/weirnet/weir/packet"

// slack is how far behind the newest data or acknowledgement a segment may lie however small the window is: one
// unscaled window and a little more, as in pf's and Linux's trackers (Rooij, "Real stateful TCP packet filtering", 2001).
const slack = 66000

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

// stepTCP is section 8 of docs/design/0003-judgement.md; the numbers are those of its list.
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
	if d.Flags&Seen == 0 { // 4
		return s.firstTCP(seg, from, now)
	}
	if s.Loose { // 5
		d.advance(seg, 0, now)
		if f&flagRST != 0 {
			d.Flags |= Rst
		}
		return Hit
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
	edge := p.Edge
	if p.Flags&Acked == 0 {
		edge = d.Start + 1 + p.Win
	}
	end := seg.Seq + seg.Len
	if before(edge, seg.Seq) || before(edge+1, end) || before(end, d.End-max(p.Win, slack)) {
		return BadWindow
	}
	if before(p.End, seg.Ack) || before(seg.Ack, p.End-max(d.Win, slack)) {
		return BadAck
	}
	var scale uint8
	if d.Flags&p.Flags&Scaled != 0 && f&flagSYN == 0 {
		scale = d.Scale
	}
	d.advance(seg, scale, now) // 8
	if from == 0 && !before(seg.Ack, p.Start+1) {
		d.Flags |= Proved
	}
	return Hit
}

// synTCP judges a SYN without ACK for an open state.
func (s *State) synTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	switch {
	case d.Flags&Syn != 0 && p.Flags&Seen == 0:
		if seg.Seq != d.Start {
			return Recycle
		}
		d.touch(seg, now)
		return Hit
	case d.Flags&Seen == 0:
		d.begin(seg, now)
		return Hit
	}
	return Untouched
}

// firstTCP judges the first segment of a side, which is not a bare SYN.
func (s *State) firstTCP(seg *Segment, from int, now int64) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	f := seg.Flags
	switch {
	case s.Loose:
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

// resetTCP judges an RST from a side that was seen before.
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
