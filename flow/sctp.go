package flow

import "time"

// stepSCTP updates an association. Every packet carries the tag that its receiver chose, the same
// one for the whole association; INIT carries 0. ABORT and SHUTDOWN COMPLETE with the T bit carry
// the sender's own (RFC 9260 8.5.1). An end chooses its tag in its INIT or INIT ACK; one that has
// restarted chooses another tag for the same association (RFC 9260 5.2.2).
//
// An INIT may be forged, and its receiver answers it (RFC 9260 5.2.1, 5.2.2): by an INIT ACK with
// the forged tag, or by an ABORT. It keeps what it had. So an INIT takes no tag from another one,
// and an INIT ACK does not show which tag is in use. An ABORT ends the association only if its tag
// is known to be in use.
func (s *State) stepSCTP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	ends := seg.ends()
	switch {
	case s.closed():
		if seg.Chunk == chunkInit {
			return ResultRecycle
		}
		return ResultUntouched
	case seg.Chunk == chunkInit:
		if d.Flags&SideSyn != 0 && seg.Init == 0 {
			return ResultUntouched
		}
		d.ask(seg)
	case ends && seg.Bits&bitT != 0:
		if !p.uses(d, seg.Seq) {
			return ResultBadTag
		}
		ends = p.certain(d, seg.Seq)
	case !d.mayUse(p, seg.Seq):
		return ResultBadTag
	default:
		ends = ends && d.certain(p, seg.Seq)
		d.tag(p, seg)
		d.answer(p, seg)
	}
	if ends {
		d.Flags |= SideRst
	}
	d.touch(seg, now)
	if seg.Chunk != chunkInit {
		s.prove(from)
	}
	return ResultHit
}

// ends reports whether the packet ends an association.
func (seg *Segment) ends() bool {
	return seg.Chunk == chunkAbort || seg.Chunk == chunkShutdownComplete
}

// asked returns the tags that a side has asked the other one to use, 0 for none. They are those in
// its first INIT, in its INIT ACK to the other side's first INIT, and last.
func (d *Side) asked() [3]uint32 { return [3]uint32{d.Ack, d.Edge, d.End} }

// uses reports whether a tag is the one that d has used first, or p has asked for it.
func (d *Side) uses(p *Side, tag uint32) bool {
	if d.Flags&SideSyn != 0 && tag == d.Start {
		return true
	}
	for _, asked := range p.asked() {
		if p.Flags&SideAcked != 0 && tag != 0 && tag == asked {
			return true
		}
	}
	return false
}

// mayUse reports whether a packet of side d may carry a tag. Where none is known, it may carry any.
func (d *Side) mayUse(p *Side, tag uint32) bool {
	return d.uses(p, tag) || d.Flags&SideSyn == 0 && p.Flags&SideAcked == 0
}

// certain reports whether a tag that d may use is that of the association: d has used it first, or
// has used none, and p has asked for no other.
func (d *Side) certain(p *Side, tag uint32) bool {
	if d.Flags&SideSyn != 0 {
		return tag == d.Start
	}
	for _, asked := range p.asked() {
		if p.Flags&SideAcked != 0 && asked != 0 && asked != tag {
			return false
		}
	}
	return true
}

// ask records the tag that an INIT asks the other side to use.
func (d *Side) ask(seg *Segment) {
	if seg.Init == 0 {
		return
	}
	if d.Ack == 0 {
		d.Ack = seg.Init
	}
	d.End = seg.Init
	d.Flags |= SideAcked
}

// answer records the tag that an INIT ACK asks the other side to use. If p has sent INITs with
// several tags, one of them may be forged: then the tag of the answer to the first stays apart from
// those of the others.
func (d *Side) answer(p *Side, seg *Segment) {
	if seg.Init == 0 {
		return
	}
	if seg.Seq == p.Ack && (d.Edge == 0 || p.Ack != p.End) {
		d.Edge = seg.Init
	} else {
		d.End = seg.Init
	}
	d.Flags |= SideAcked
}

// tag records the first tag that a side uses. An INIT has none, an INIT ACK or ABORT may answer an
// INIT that was forged. p may have asked for that tag in answer to a later INIT than the first.
// Then the first was not that of d, and the last one counts as such from now on.
func (d *Side) tag(p *Side, seg *Segment) {
	if d.Flags&SideSyn != 0 || seg.Chunk == chunkInit || seg.Chunk == chunkInitAck || seg.ends() {
		return
	}
	if d.Flags&SideAcked != 0 && seg.Seq == p.End && seg.Seq != p.Edge && seg.Seq != p.Ack {
		d.Ack = d.End
	}
	d.Start = seg.Seq
	d.Flags |= SideSyn
}
