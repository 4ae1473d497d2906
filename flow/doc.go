// Package flow knows what a flow is: its key, its two sides, and how TCP, UDP, ICMP and
// SCTP packets move it. Everything here is a pure function; the clock is an argument.
//
// A flow is found by its Key, which is the same for packets of both directions:
//
//	key, dir, ok := flow.KeyOf(&p, b, link)
//
// Its State has two Sides. The side of the end that sent the first packet is side 0. New makes a
// state from a first packet, and Step moves it:
//
//	seg := flow.SegmentOf(&p, b)
//	s, ok := flow.New(p.Proto, &seg, now)
//	...
//	switch r := s.Step(&seg, side, now, false); {
//	case r.Drops(): // the packet does not belong to this flow
//	case r == flow.Recycle: // a new flow on the same ports
//	}
//
// A packet from one end changes only that end's Side. Nothing is stored that follows from the
// sides: Phase, Lifetime and Deadline are computed when somebody asks.
//
// docs/design/0003-evaluation.md, sections 4, 8 and 9, is the specification; the kernel engine
// follows the same page.
package flow
