// Package flow is the state machine of a flow: its key, its two sides, and how TCP, UDP, ICMP and
// SCTP packets change them. Everything here is a pure function; the time is an argument.
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
// A packet from one end changes only that end's Side. What follows from the sides is not stored:
// Phase, Lifetime and Deadline are computed on demand.
//
// docs/design/0003-evaluation.md, sections 4, 8 and 9, is the specification, which the kernel
// engine implements, too.
package flow
