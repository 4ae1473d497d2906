// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The numbers and flags of the sides of a TCP connection.
//
// Two CPUs may carry packets of one side at once. So numbers that only grow are raised by
// compare-and-swap. Flags are set after the numbers that they declare valid, by an atomic operation
// that orders them. begin, pick_up with its callers, and advance store numbers, and then call
// set_flags. Where the processor may reorder loads, a reader may have read a number before the
// flag, when both packets are processed at one moment. It then evaluates by a number that was not
// set, and refuses a segment, or leaves it to the rules. It changes nothing: a segment that
// advances a side has to fit the numbers of both.
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
		or_ordered(&s->flags, flags); // after the numbers that they declare valid
}

// raise sets *at to v if that is later, modulo 2^32. It gives up after four lost races. Each was
// won by a segment of the same side that raised the number, so nothing moves back. A segment
// without valid numbers cannot race. What this segment alone would have added is then missing, as
// if the firewall had not seen it. For `end` the acknowledgement of its bytes is refused until they
// are sent again; for `ack` and `edge` the other side's window opens with the next acknowledgement.
// TCP repairs both like the loss of one segment. The verifier refuses a loop without a bound, and
// each round adds instructions to verify.
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

// first_flags are the flags that follow from the first segment of a side.
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
// and its acknowledgement from what the other side has sent.
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

// picked_flags are the flags that follow from a side's segment in mid-stream. A FIN counts when the
// numbers of the other side agree.
static __always_inline __u32 picked_flags(const struct packet *p, __u32 scale)
{
	__u8 f = p->tcp_flags;

	return SIDE_SEEN | scale | (f & TH_ACK ? SIDE_ACKED : 0) | (f & TH_RST ? SIDE_RST : 0);
}

// newest is what replaces a number that nothing confirms: the new one, unless it is a little less,
// because its segment came out of order.
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

// replace_flags replaces flags in one step. It gives up after four lost races.
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
