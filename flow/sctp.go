package flow

import "time"

// stepSCTP moves an association. Every packet carries the tag that its receiver chose, the same one
// for the whole association; INIT carries 0. ABORT and SHUTDOWN COMPLETE with the T bit carry the
// sender's own (RFC 9260 8.5.1).
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
		if d.Flags&SideSyn != 0 {
			return ResultUntouched
		}
	case ends && seg.Bits&bitT != 0:
		if p.Flags&SideSyn == 0 || seg.Seq != p.Start {
			return ResultBadTag
		}
	case d.Flags&SideSyn != 0 && seg.Seq != d.Start:
		return ResultBadTag
	default:
		d.tag(seg)
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

// tag notes the tag that a side uses, unless the packet carries none of its own.
func (d *Side) tag(seg *Segment) {
	if seg.Chunk == chunkInit || seg.Bits&bitT != 0 &&
		(seg.Chunk == chunkAbort || seg.Chunk == chunkShutdownComplete) {
		return
	}
	d.Start = seg.Seq
	d.Flags |= SideSyn
}
