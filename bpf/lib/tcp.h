// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The state machines, docs/design/0003-evaluation.md sections 4, 8 and 9; flow.State does the same
// in Go. The numbers in comments are those of section 8's list. A packet writes only its own side.
//
// Two CPUs may carry packets of one side at once, so numbers that only grow are raised by
// compare-and-swap, and facts (flags) are set after the numbers that they vouch for, by an atomic
// operation that orders them. begin, pick_up with its callers, and advance store numbers, and then
// call set_flags. Where loads may pass each other, a reader may have read a number before the flag,
// when both packets are processed at one moment. It then evaluates by a number that was not set,
// and refuses a segment, or leaves it to the rules. It changes nothing: whatever advances a side
// has to fit the numbers of both.
#pragma once

#include "key.h"

enum { SLACK = 66000 };

static __always_inline int before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

static __always_inline int between(__u32 lo, __u32 x, __u32 hi)
{
	return !before(x, lo) && !before(hi, x);
}

static __always_inline __u32 max32(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

static __always_inline void set_flags(struct side *s, __u32 flags)
{
	if ((READ_ONCE(s->flags) & flags) != flags)
		or_ordered(&s->flags, flags); // after the numbers that they vouch for
}

// raise sets *at to v if that is later, modulo 2^32. It gives up after four lost races. A segment
// of the same side that raised the number won each, so nothing moves back, and a segment without
// valid numbers cannot race. What this segment alone would have added is then missing, as if the
// firewall had not seen it. For `end` the acknowledgement of its bytes is refused until they are
// sent again, for `ack` and `edge` the other side's window opens with the next acknowledgement. TCP
// repairs both as it does the loss of one segment. A loop without a bound is refused by the
// verifier, and each round is paid by all of them in instructions to verify.
static __always_inline void raise(__u32 *at, __u32 v)
{
	for (int i = 0; i < 4; i++) {
		__u32 old = READ_ONCE(*at);
		if (!before(old, v) || __sync_val_compare_and_swap(at, old, v) == old)
			return;
	}
}

static __always_inline int bad_flags(__u8 f)
{
	return !(f & (TH_SYN | TH_ACK | TH_RST)) || (f & TH_SYN && f & (TH_FIN | TH_RST));
}

static __always_inline int bare_syn(__u8 f)
{
	return (f & (TH_SYN | TH_ACK)) == TH_SYN;
}

static __always_inline __u32 segment_length(const struct packet *p)
{
	__u8 f = p->tcp_flags;
	return p->len - p->payload + (f & TH_SYN ? 1 : 0) + (f & TH_FIN ? 1 : 0);
}

// count_side counts a packet of `len` bytes for its side. Where two CPUs carry one direction at the
// same moment, a packet may stay uncounted: atomic sums cost every packet a fifth of the whole
// evaluation.
static __always_inline void count_side(struct side *d, __s64 now, __u32 len)
{
	d->last = now;
	d->packets++;
	d->bytes += len;
}

// touch counts the packet for its side, which has been seen with it.
static __always_inline void touch(struct side *d, const struct packet *p)
{
	count_side(d, p->now, p->len);
	set_flags(d, SIDE_SEEN);
}

// first_flags are the facts that the first segment of a side shows.
static __always_inline __u32 first_flags(const struct packet *p)
{
	__u8 f = p->tcp_flags;
	__u32 set = SIDE_SEEN;

	if (f & TH_SYN) {
		set |= SIDE_SYN;
		if (p->scale != NO_SCALE)
			set |= SIDE_SCALED | (__u32)p->scale << 8;
	}
	if (f & TH_ACK)
		set |= SIDE_ACKED;
	if (f & TH_FIN)
		set |= SIDE_FIN;
	if (f & TH_RST)
		set |= SIDE_RST;
	return set;
}

// loose: the state was made or adopted in mid-stream, and the numbers of a side are still unknown.
static __always_inline int loose(struct side *d, struct side *o)
{
	return d->flags & META_LOOSE && !(d->flags & o->flags & SIDE_ACKED);
}

// NEAR is how far a first segment of one side may lie from what the other side has acknowledged,
// and its acknowledgement from what that has sent.
enum { NEAR = 1 << 24 };

static __always_inline int near(__u32 a, __u32 b)
{
	return a - b + NEAR <= 2 * NEAR;
}

// SIDE_SCALE are the bits of a side's flags that hold its scale.
enum { SIDE_SCALE = 15 << 8 };
#define SCALE_UNKNOWN (SIDE_SCALED | LOOSE_SCALE << 8)

// loose_scale returns SIDE_SCALED and the scale of a side in mid-stream as in its flags: the
// largest, unless resync has left what the SYNs said.
static __always_inline __u32 loose_scale(struct side *d, struct side *o)
{
	__u32 both = d->flags & o->flags;

	if (!(both & SIDE_SYN))
		return SCALE_UNKNOWN;
	return both & SIDE_SCALED ? SIDE_SCALED | (d->flags & SIDE_SCALE) : 0;
}

// picked_flags are the facts that a side's segment in mid-stream shows. A FIN counts when the
// numbers of the other side agree.
static __always_inline __u32 picked_flags(const struct packet *p, __u32 scale)
{
	__u8 f = p->tcp_flags;

	return SIDE_SEEN | scale | (f & TH_ACK ? SIDE_ACKED : 0) | (f & TH_RST ? SIDE_RST : 0);
}

// newest is what replaces a number that nothing vouches for: the new one, unless its segment comes
// out of order, which is when it is a little less.
static __always_inline __u32 newest(__u32 old, __u32 is)
{
	return old - is <= SLACK ? old : is;
}

// pick_up initialises a side from a segment in mid-stream, but for its flags; `again` if it was
// picked up before.
static __always_inline void pick_up(struct side *d, const struct packet *p, __u32 scale, int again)
{
	__u32 win = (__u32)p->window << (scale >> 8 & 15), end = p->seq + segment_length(p);

	d->start = p->seq;
	d->end = again ? newest(d->end, end) : end;
	d->win = win;
	if (p->tcp_flags & TH_ACK) {
		d->ack = again ? newest(d->ack, p->ack) : p->ack;
		d->edge = again ? newest(d->edge, p->ack + win) : p->ack + win;
	}
	touch(d, p);
}

// replace_flags exchanges flags at once, unless others change them all the time.
static __always_inline void replace_flags(struct side *s, __u32 gone, __u32 set)
{
	for (int i = 0; i < 4; i++) {
		__u32 old = READ_ONCE(s->flags);
		if (__sync_val_compare_and_swap(&s->flags, old, (old & ~gone) | set) == old)
			return;
	}
}

// resync makes the numbers of a connection unknown: they are taken from its next segments, as those
// of an adopted one. It is liberal until it is loose, so nothing is refused in between. Where the
// SYNs were seen the scales remain known.
static __always_inline void resync(struct side *low, struct side *high)
{
	__u32 gone = SIDE_ACKED | META_LIBERAL | META_BEHIND, set = META_LOOSE;

	if (!(low->flags & high->flags & SIDE_SYN)) {
		gone |= SIDE_SYN | SIDE_SCALE;
		set |= SCALE_UNKNOWN;
	}
	or_ordered(&low->flags, META_LOOSE);
	or_ordered(&high->flags, META_LOOSE);
	replace_flags(low, gone, set);
	replace_flags(high, gone, set);
}

// begin initialises a side from its first segment.
static __always_inline void begin(struct side *d, const struct packet *p)
{
	d->start = p->seq;
	d->end = p->seq + segment_length(p);
	d->win = p->window;
	if (p->tcp_flags & TH_ACK) {
		d->ack = p->ack;
		d->edge = p->ack + p->window;
	}
	set_flags(d, first_flags(p));
	touch(d, p);
}

// raise_sent and raise_acked move the numbers of a side by a valid segment that ends at `end`, and
// by its acknowledgement.
static __always_inline void raise_sent(struct side *d, __u32 end, __u32 win)
{
	raise(&d->end, end);
	if (d->win < win)
		d->win = win;
}

static __always_inline void raise_acked(struct side *d, __u32 ack, __u32 win)
{
	__u64 *at = (void *)&d->ack; // with edge above it: one operation raises both

	for (int i = 0; i < 4; i++) {
		__u64 old = READ_ONCE(*at);
		__u32 a = old, edge = old >> 32;
		if (before(a, ack))
			a = ack;
		if (before(edge, ack + win))
			edge = ack + win;
		__u64 is = (__u64)edge << 32 | a;
		if (is == old || __sync_val_compare_and_swap(at, old, is) == old)
			return;
	}
}

// in_window evaluates a segment of side d with ACK by the numbers of both sides (7): RES_HIT,
// RES_BAD_WINDOW or RES_BAD_ACK. It begins at seq and ends at end; `edge` is how far o lets d send.
static __always_inline int in_window(struct side *d, struct side *o, __u32 edge, __u32 seq,
				     __u32 end, __u32 ack)
{
	__u32 sent = READ_ONCE(o->end);

	if (before(edge, seq) || before(edge + 1, end) ||
	    before(end, READ_ONCE(d->end) - max32(o->win, SLACK)))
		return RES_BAD_WINDOW;
	if (before(sent, ack) || before(ack, sent - max32(d->win, SLACK)))
		return RES_BAD_ACK;
	return RES_HIT;
}

// advance moves the numbers of a side by a valid segment.
static __always_inline void advance(struct side *d, const struct packet *p, __u32 scale)
{
	__u8 f = p->tcp_flags;
	__u32 win = (__u32)p->window << (scale & 15), set = 0;

	raise_sent(d, p->seq + segment_length(p), win);
	if (f & TH_ACK) {
		if (!(READ_ONCE(d->flags) & SIDE_ACKED)) {
			d->ack = p->ack;
			d->edge = p->ack + win;
			set |= SIDE_ACKED;
		}
		raise_acked(d, p->ack, win);
	}
	if (f & TH_FIN)
		set |= SIDE_FIN;
	if (f & TH_RST)
		set |= SIDE_RST;
	set_flags(d, set | SIDE_SEEN);
	touch(d, p);
}

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

// phase_half_open: a flow in this phase has not proved itself.
static __always_inline int phase_half_open(int phase)
{
	return phase == PHASE_OPENING || phase == PHASE_ANSWERED;
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

// A translation outlives the state of its flow by so much: the time of its last packet is exact to
// a second, and late segments of a closed connection are translated as those before them.
#define NAT_GRACE 2000000000LL
#define NAT_FOLLOWS (1LL << 62)

// nat_lifetime is that of a translation: its flow's. The wire entry goes when the inner one does.
static __always_inline __s64 nat_lifetime(struct config *c, struct side *low, struct side *high,
					  __u8 proto)
{
	if (low->flags & META_WIRE)
		return NAT_FOLLOWS;
	return lifetime(c, READ_ONCE(high->track) & NAT_PHASE, proto) + NAT_GRACE;
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

// near_known: both numbers of a segment fit the last ones that are known of its connection but for
// what may have been missed. A blind segment does once in 2^30.
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

// loose_tcp evaluates a segment of a state of which the numbers of a side are unknown, no bare SYN
// (4).
static __always_inline int loose_tcp(struct side *d, struct side *o, const struct packet *p)
{
	if (p->tcp_flags & TH_RST) {
		// what d itself has said, nothing vouches for
		if (!(o->flags & SIDE_ACKED && p->seq == o->ack))
			return RES_UNTOUCHED;
		set_flags(d, SIDE_RST);
		touch(d, p);
		return RES_HIT;
	}
	__u32 scale = loose_scale(d, o);
	// nothing vouches for the earlier numbers of d: the newest count
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
// nothing: the first was lost, and its sender has started again or made another SYN cookie.
static __always_inline int answers_again(struct side *d, struct side *o, const struct packet *p)
{
	return p->tcp_flags & TH_SYN && o->flags & META_MADE &&
	       !(o->flags & (SIDE_ACKED | SIDE_PROVED)) && p->seq != d->start && acks_syn(o, p);
}

// first_tcp evaluates the first segment of a side, no bare SYN (5).
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
	// of mid-stream the start is not known
	if (d->flags & META_MADE && (d->flags & META_LOOSE || !before(p->ack, o->start + 1)))
		set_flags(d, SIDE_PROVED);
	return RES_HIT;
}
