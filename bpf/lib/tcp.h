// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The state machines, docs/design/0003-evaluation.md sections 4, 8 and 9; flow.State does the same
// in Go. The numbers in comments are those of section 8's list. A packet writes only its own side.
#pragma once

#include "tcp_side.h"

static __always_inline int closed(struct side *a, struct side *b)
{
	__u32 both = a->flags & b->flags;

	if ((a->flags | b->flags) & SIDE_RST)
		return 1;
	if ((both & (SIDE_FIN | SIDE_ACKED)) != (SIDE_FIN | SIDE_ACKED))
		return 0;
	return !before(b->ack, a->end) && !before(a->ack, b->end);
}

// phase_of is flow.State.Phase.
static __always_inline int phase_of(struct side *low, struct side *high, __u8 proto)
{
	__u32 lf = low->flags, hf = high->flags;

	if ((lf | hf) & SIDE_RST)
		return PHASE_RESET;
	if (proto != PROTO_TCP)
		return (lf | hf) & SIDE_PROVED ? PHASE_ESTABLISHED :
		       lf & hf & SIDE_SEEN     ? PHASE_ANSWERED :
						 PHASE_OPENING;
	if (lf & hf & SIDE_FIN)
		return closed(low, high) ? PHASE_CLOSED : PHASE_CLOSING;
	if (!(lf & hf & SIDE_SEEN) || !((lf | hf) & SIDE_PROVED))
		return PHASE_OPENING;
	return lf & META_LOOSE || lf & hf & SIDE_ACKED ? PHASE_ESTABLISHED : PHASE_OPENING;
}

static __always_inline __s64 lifetime(struct config *c, int phase, __u8 proto)
{
	if (proto == PROTO_TCP)
		return phase == PHASE_ESTABLISHED ? c->life_established :
		       phase == PHASE_CLOSED	  ? c->life_fin :
		       phase == PHASE_RESET	  ? c->life_rst :
						    c->life_syn;
	if (proto == PROTO_UDP || proto == PROTO_UDPLITE)
		return phase == PHASE_ESTABLISHED || phase == PHASE_ANSWERED ? c->life_udp_reply :
									       c->life_udp;
	if (proto == PROTO_SCTP)
		return phase == PHASE_ESTABLISHED ? c->life_established :
		       phase == PHASE_RESET	  ? c->life_rst :
						    c->life_syn;
	return c->life_short;
}

// A translation outlives the state of its flow by this time. The time of its last packet is exact
// to a second, and late segments of a closed connection are still translated.
#define NAT_GRACE 2000000000LL
#define NAT_FOLLOWS (1LL << 62)

// nat_lifetime is the lifetime of a translation: its flow's. The wire entry is removed with the
// inner one.
static __always_inline __s64 nat_lifetime(struct config *c, struct side *low, struct side *high,
					  __u8 proto)
{
	if (low->flags & META_WIRE)
		return NAT_FOLLOWS;
	return lifetime(c, phase_in(high), proto) + NAT_GRACE;
}

static __always_inline int expired(struct config *c, struct side *low, struct side *high,
				   __u8 proto, __s64 now)
{
	__s64 life = low->rule == NAT_RULE ? nat_lifetime(c, low, high, proto) :
					     lifetime(c, phase_of(low, high, proto), proto);

	return now > READ_ONCE(low->last) + life && now > READ_ONCE(high->last) + life;
}

// syn_tcp evaluates a SYN without ACK for an open state (3).
static __always_inline int syn_tcp(struct side *d, struct side *o, const struct packet *p)
{
	if (d->flags & SIDE_SYN && !(o->flags & SIDE_SEEN)) {
		if (p->seq != d->start)
			return RES_RECYCLE;
		touch(d, p);
		return RES_HIT;
	}
	if (!(d->flags & (SIDE_SEEN | META_LOOSE))) {
		begin(d, p);
		return RES_HIT;
	}
	return RES_UNTOUCHED;
}

// near_known: both numbers of a segment lie within SLACK of the last known ones of its connection,
// of which packets may have been missed. A blind segment passes once in 2^30.
static __always_inline int near_known(struct side *d, struct side *o, const struct packet *p)
{
	return d->end - p->seq + SLACK <= 2 * SLACK && o->end - p->ack + SLACK <= 2 * SLACK;
}

// ends_near: the segment is the FIN of a connection whose numbers were known before resync. A FIN
// that was not recorded would leave the state established when the connection is over.
static __always_inline int ends_near(struct side *d, struct side *o, const struct packet *p)
{
	return p->tcp_flags & TH_FIN && d->flags & o->flags & SIDE_SYN && near_known(d, o, p);
}

// catches_up: the state is a copy that may have missed packets, and the segment shows how far the
// connection has come. So a FIN, an RST, or the last acknowledgement is recorded although the copy
// does not know what came before.
static __always_inline int catches_up(struct side *d, struct side *o, const struct packet *p)
{
	return d->flags & META_BEHIND && d->flags & o->flags & SIDE_ACKED &&
	       p->tcp_flags & TH_ACK && near_known(d, o, p);
}

// loose_tcp evaluates a segment, not a bare SYN, of a state in which the numbers of a side are
// unknown (4).
static __always_inline int loose_tcp(struct side *d, struct side *o, const struct packet *p)
{
	if (p->tcp_flags & TH_RST) {
		// nothing confirms the numbers of d itself
		if (!(o->flags & SIDE_ACKED && p->seq == o->ack))
			return RES_UNTOUCHED;
		set_flags(d, SIDE_RST);
		touch(d, p);
		return RES_HIT;
	}
	__u32 scale = loose_scale(d, o);
	// nothing confirms the earlier numbers of d: the newest count
	if (!(o->flags & SIDE_ACKED)) {
		__u32 fin = ends_near(d, o, p) ? SIDE_FIN : 0;
		pick_up(d, p, scale, d->flags & SIDE_ACKED);
		set_flags(d, picked_flags(p, scale) | fin);
		return RES_HIT;
	}
	if (!near(p->seq, o->ack) || !near(p->ack, o->end))
		return RES_UNTOUCHED;
	// one of the two has sent more than was seen: the next segments would be refused
	if (before(o->end, p->ack) || before(p->seq + segment_length(p), o->ack))
		return RES_UNTOUCHED;
	pick_up(d, p, scale, 0);
	set_flags(d, picked_flags(p, scale) | (p->tcp_flags & TH_FIN ? SIDE_FIN : 0) |
			     (d->flags & META_MADE ? SIDE_PROVED : 0));
	return RES_HIT;
}

// acks_syn: the segment acknowledges the SYN of side o, and nothing that o has not sent.
static __always_inline int acks_syn(struct side *o, const struct packet *p)
{
	return before(o->start, p->ack) && !before(o->end, p->ack);
}

// answers_again: a SYN-ACK replaces the one before, of which the side that began has acknowledged
// nothing. The first was lost, and its sender has started again or made another SYN cookie.
static __always_inline int answers_again(struct side *d, struct side *o, const struct packet *p)
{
	return p->tcp_flags & TH_SYN && o->flags & META_MADE &&
	       !(o->flags & (SIDE_ACKED | SIDE_PROVED)) && p->seq != d->start && acks_syn(o, p);
}

// first_tcp evaluates the first segment of a side, not a bare SYN (5).
static __always_inline int first_tcp(struct side *d, struct side *o, const struct packet *p)
{
	__u8 f = p->tcp_flags;

	if (f & TH_RST) {
		if (!(f & TH_ACK) || p->ack != o->end)
			return RES_BAD_RST;
	} else if ((f & (TH_SYN | TH_ACK)) == (TH_SYN | TH_ACK)) {
		if (!acks_syn(o, p))
			return RES_BAD_ACK;
	} else {
		return f & TH_ACK ? RES_UNTOUCHED : RES_BAD_WINDOW;
	}
	begin(d, p);
	return RES_HIT;
}

// reset_tcp evaluates an RST from a side that was seen before (6).
static __always_inline int reset_tcp(struct side *d, struct side *o, const struct packet *p)
{
	int acked = o->flags & SIDE_ACKED;

	if (p->seq == d->end || (acked && p->seq == o->ack)) {
		set_flags(d, SIDE_RST);
		touch(d, p);
		return RES_HIT;
	}
	if (!(o->flags & SIDE_SEEN) || (acked && between(o->ack, p->seq, o->edge)))
		return RES_UNTOUCHED;
	return RES_BAD_RST;
}

// step_tcp advances a TCP state by a packet of side d; o is the other side.
static __always_inline int step_tcp(struct side *d, struct side *o, const struct packet *p)
{
	__u8 f = p->tcp_flags;
	int begins = bare_syn(f);

	if (bad_flags(f)) // 1
		return RES_BAD_FLAGS;
	if (closed(d, o)) // 2
		return begins ? RES_RECYCLE : RES_UNTOUCHED;
	if (begins) // 3
		return syn_tcp(d, o, p);
	if (unlikely(loose(d, o))) // 4
		return loose_tcp(d, o, p);
	if (!(d->flags & SIDE_SEEN)) // 5
		return first_tcp(d, o, p);
	if (f & TH_RST && !catches_up(d, o, p)) // 6
		return reset_tcp(d, o, p);
	if (!(f & TH_ACK)) // 7
		return RES_BAD_FLAGS;
	if (!(o->flags & SIDE_SEEN))
		return RES_BAD_ACK;
	if (unlikely(answers_again(d, o, p))) {
		__sync_fetch_and_and(&d->flags, ~(SIDE_ACKED | SIDE_FIN | SIDE_SCALED | 15 << 8));
		begin(d, p);
		return RES_HIT;
	}
	__u32 edge = o->flags & SIDE_ACKED ? READ_ONCE(o->edge) : d->start + 1 + o->win;
	int fit = in_window(d, o, edge, p->seq, p->seq + segment_length(p), p->ack);
	if (fit != RES_HIT && !catches_up(d, o, p))
		return fit;
	__u32 scale = d->flags & o->flags & SIDE_SCALED && !(f & TH_SYN) ? d->flags >> 8 & 15 : 0;
	advance(d, p, scale); // 8
	// in mid-stream the start is not known
	if (d->flags & META_MADE && (d->flags & META_LOOSE || !before(p->ack, o->start + 1)))
		set_flags(d, SIDE_PROVED);
	return RES_HIT;
}
