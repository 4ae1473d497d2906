// Package flow implements the state machine of a flow: its key, its two sides, and how TCP, UDP,
// ICMP and SCTP packets change them. All functions are pure. Times are arguments: each is the
// time.Duration since the start of one monotonic clock.
//
// A flow is found by its Key, which is the same for packets of both directions:
//
//	key, from, ok := flow.KeyOf(&p, b, link)
//
// KeyOf also returns which End of the key sent the packet. A State has two Sides, one for each Dir:
// DirOriginal is the direction of the first packet. New makes a state from the first packet, and
// Step updates it with each further one:
//
//	seg := flow.SegmentOf(&p, b)
//	s, ok := flow.New(p.Proto, &seg, now)
//	...
//	switch r := s.Step(&seg, from.Dir(first), now, flow.ModeStrict); {
//	case r.Drops(): // the packet does not belong to this flow
//	case r == flow.ResultRecycle: // a new flow on the same ports
//	}
//
// A packet from one end changes only the Side of that end. Phase, Lifetime and Deadline are not
// stored, but computed from the sides on demand.
//
// docs/design/0003-evaluation.md, sections 4, 8 and 9, is the specification. The kernel engine
// implements it too.
package flow
