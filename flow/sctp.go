package flow

import "time"

// stepSCTP updates an association. Every packet carries the tag that its receiver chose, the same
// one for the whole association; INIT carries 0. ABORT and SHUTDOWN COMPLETE with the T bit carry
// the sender's own (RFC 9260 8.5.1). An end chooses its tag in its INIT or INIT ACK; one that has
// restarted chooses another tag for the same association (RFC 9260 5.2.2). Such an INIT may be
// forged, so the tag that was used before stays valid, and only a packet with it ends the
// association.
func (s *State) stepSCTP(seg *Segment, from int, now time.Duration) Result {
	d, p := &s.Sides[from], &s.Sides[1-from]
	ends := seg.Chunk == chunkAbort || seg.Chunk == chunkShutdownComplete
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
		if p.Flags&SideSyn == 0 || seg.Seq != p.Start {
			return ResultBadTag
		}
	case !d.mayUse(p, seg.Seq):
		return ResultBadTag
	default:
		d.tag(seg)
		d.ask(seg)
		ends = ends && seg.Seq == d.Start
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

// mayUse reports whether a packet of side d may carry a tag: the one that d has used, or the one
// that p has asked for last. Where neither is known, it may carry any.
func (d *Side) mayUse(p *Side, tag uint32) bool {
	if d.Flags&SideSyn != 0 && tag == d.Start {
		return true
	}
	if p.Flags&SideAcked != 0 {
		return tag == p.End
	}
	return d.Flags&SideSyn == 0
}

// ask records the tag that a side asks the other one to use.
func (d *Side) ask(seg *Segment) {
	if seg.Init != 0 {
		d.End = seg.Init
		d.Flags |= SideAcked
	}
}

// tag records the first tag that a side uses, unless the packet is an INIT or reflects a tag
// (bitT).
func (d *Side) tag(seg *Segment) {
	if d.Flags&SideSyn != 0 || seg.Chunk == chunkInit || seg.Bits&bitT != 0 &&
		(seg.Chunk == chunkAbort || seg.Chunk == chunkShutdownComplete) {
		return
	}
	d.Start = seg.Seq
	d.Flags |= SideSyn
}
