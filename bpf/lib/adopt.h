// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Adoption of states that this table has not made: connections that were open before there were
// rules, and the states of a previous table.
#pragma once

#include "sweep.h"

// The agent never gets ADOPT_FOUND: look->place is that of the state, and adopt's caller calls
// merge. In adopt the two stacks would add up to more than Linux 6.1 allows.

// adopt_track counts an adopted state in the track of its rule, also beyond the limit.
static __always_inline void adopt_track(struct cpu *c, struct lookup *look, struct limit *limit,
					struct walk *walk, struct side *low, struct side *high,
					int made)
{
	void *image = image_of(walk);
	struct code *r = image ? find_rule(walk, image, low->rule) : NULL;

	low->track = NONE.plus1;
	low->flags &= ~(META_TRACKED | META_TRACK_PROVED);
	if (!r || (r->state != STATE_LIMIT && r->state != STATE_SET_LIMIT))
		return;
	mask_state(limit, r, (struct address *)&look->key.low_hi,
		   (struct address *)&look->key.high_hi, look->key.ports, look->key.proto, made);
	limit->flow = 0;
	struct maybe track = maybe_from(enter_limit(c, TRACK_DEAD));
	if (!exists(track))
		return;
	take_track(limit, low, high, track);
	low->flags |= META_TRACKED;
	if (!(low->flags & META_HALF_OPEN) &&
	    add_track(track_at(track), limit->era, TRACK_ONE_PROVED))
		low->flags |= META_TRACK_PROVED;
}

// has_missed reports whether a side has not seen all that another table knows of it. The byte
// counts show it when the sequence numbers have moved by more than 2^31.
static __always_inline int has_missed(struct side *d, struct side *v)
{
	return d->bytes < v->bytes || before(READ_ONCE(d->end), v->end) ||
	       (v->flags & SIDE_ACKED &&
		(before(READ_ONCE(d->ack), v->ack) || before(READ_ONCE(d->edge), v->edge)));
}

// catch_up_tags brings the verification tags of a side of SCTP up to date. They do not grow: the
// first that a side uses stays, and of those that it asks for the last ones count.
static __always_inline void catch_up_tags(struct side *d, struct side *v)
{
	if (v->flags & SIDE_SYN && !(READ_ONCE(d->flags) & SIDE_SYN))
		d->start = v->start;
	if (v->flags & SIDE_ACKED && (!(READ_ONCE(d->flags) & SIDE_ACKED) || d->last <= v->last)) {
		d->end = v->end;
		d->ack = v->ack;
		d->edge = v->edge;
	}
}

// catch_up_numbers does so for the numbers of TCP, which only move forward. The byte counts show
// that they moved by more than half of the circle, unless each table has seen packets that the
// other has not.
static __always_inline void catch_up_numbers(struct side *d, struct side *v, int stale)
{
	if (!(READ_ONCE(d->flags) & SIDE_SEEN))
		d->start = v->start;
	if (!(READ_ONCE(d->flags) & SIDE_SEEN) || (d->bytes < v->bytes && !stale))
		d->end = v->end;
	else
		raise(&d->end, v->end);
	if (v->flags & SIDE_ACKED &&
	    (!(READ_ONCE(d->flags) & SIDE_ACKED) || (d->bytes < v->bytes && !stale))) {
		d->ack = v->ack;
		d->edge = v->edge;
	} else if (v->flags & SIDE_ACKED) {
		raise(&d->ack, v->ack);
		raise(&d->edge, v->edge);
	}
	if (d->win < v->win)
		d->win = v->win;
}

// catch_up brings one side up to what another table, which the call describes, knows of it.
static __always_inline void catch_up(struct side *d, struct side *v, const struct call *in)
{
	if (in->key.proto == PROTO_SCTP)
		catch_up_tags(d, v);
	else
		catch_up_numbers(d, v, in->count & ADOPT_STALE);
	if (d->last < v->last)
		d->last = v->last;
	if (d->packets < v->packets)
		d->packets = v->packets;
	if (d->bytes < v->bytes)
		d->bytes = v->bytes;
	set_flags(d, v->flags & (0xfff | META_PUBLISHED));
}

// catch_up_nat brings the inner entry of a translation up to what another table knows of its flow.
static __always_inline void catch_up_nat(struct side *low, struct side *high, struct call *in)
{
	if (low->flags & META_WIRE || low->last >= in->side[0].last)
		return;
	low->last = in->side[0].last;
	WRITE_ONCE(side_nat_word(high),
		   with_phase(READ_ONCE(side_nat_word(high)), phase_in(&in->side[1])));
}

// resyncs: a state that may have missed packets takes its numbers from the next ones. Not if both
// ends have sent their FIN: only the last acknowledgement follows.
static __always_inline int resyncs(struct call *in, struct side *low, struct side *high)
{
	return in->count & ADOPT_RESYNC && !(low->flags & high->flags & SIDE_FIN);
}

// merge brings the state at a place up to what the call with the number `at` describes. If the call
// describes a strict state, this one becomes strict when it has missed nothing: it has seen all
// packets itself, or there were none. A strict state whose connection is already ahead of its
// numbers would never catch up.
__noinline int merge(struct cpu *c, __u32 place, __u32 at)
{
	struct call *in = bpf_map_lookup_elem(&calls, &at);
	struct set *s = set_at(place / WAYS);
	if (!in || !s)
		return 0;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	if (low->rule == NAT_RULE) {
		catch_up_nat(low, high, in);
		in->place = place;
		return 0;
	}
	int behind = in->key.proto == PROTO_TCP &&
		     (has_missed(low, &in->side[0]) || has_missed(high, &in->side[1]));
	catch_up(low, &in->side[0], in);
	catch_up(high, &in->side[1], in);
	int strict = !(in->side[0].flags & META_LIBERAL);
	if (behind && strict && resyncs(in, low, high)) {
		resync(low, high);
	} else if (!behind && strict) {
		__sync_fetch_and_and(&low->flags, ~(META_LIBERAL | META_BEHIND));
		__sync_fetch_and_and(&high->flags, ~(META_LIBERAL | META_BEHIND));
	}
	if (!c)
		return 0;
	c->look.proved = NONE;
	new_phase(c, place, in->key.proto);
	count_proved(c, &c->look);
	clear_hint(place);
	return behind ? ADOPT_BEHIND : 0;
}

// adopt_error is what the agent gets in place of a result.
static __always_inline int adopt_error(int reason)
{
	return -reason;
}

// write_sides writes the sides of the state that the call describes.
static __always_inline void write_sides(struct call *in, struct set *s, __u32 way)
{
	struct side *low = low_side(s, way), *high = high_side(s, way);
	*low = in->side[0];
	*high = in->side[1];
	if (in->key.proto != PROTO_TCP)
		return;
	if (resyncs(in, low, high) && !(low->flags & META_LIBERAL)) {
		resync(low, high);
	} else if (in->count & ADOPT_MERGE && !(low->flags & META_LIBERAL)) { // it may fall behind
		low->flags |= META_LIBERAL | META_BEHIND;
		high->flags |= META_LIBERAL | META_BEHIND;
	}
}

// is_later_flow: the flow that the call describes began after the last packet of the entry at a
// place. So that is a copy of an earlier flow with the same ends, which has ended in the other
// table. The entry on the wire of a translation does not have the time of each packet. It is
// current if its inner entry is, at `partner`.
static __always_inline int is_later_flow(const struct call *in, __u32 place, struct maybe partner)
{
	struct set *s = set_at(place / WAYS);
	__s64 began = in->side[0].created;

	if (!s)
		return 0;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	if (low->rule == NAT_RULE && holds(partner, partner_of(low)))
		return 0;
	return began != low->created && began >= low->last && began >= high->last;
}

// adopt makes the state that the call with the number `at` describes, with its sides and its rule
// as they are given, unless there is one. It sets call.place. With call.place set, which is 1 + the
// place of a translation's other entry, it links the two.
__noinline int adopt(struct cpu *c, __u32 at)
{
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &at);
	struct gauge *g = gauges_now();
	if (!c || !cf || !in || !g)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct limit *limit = &c->limit;
	struct walk *walk = &c->walk;
	look->key = in->key;
	look->hashed = 0;
	key_hash(look, cf, look->key.flow);
	struct maybe partner = maybe_from(in->place);
	if (find(c, look, cf)) {
		if (!(in->count & ADOPT_MERGE))
			return 0;
		if (!is_later_flow(in, look->place, partner))
			return ADOPT_FOUND;
		remove_state(c, look->place, look->tag, GONE_RECYCLED);
	}
	__u32 flags = in->side[0].flags;
	int made = (flags & META_MADE) != 0, half_open = (flags & META_HALF_OPEN) != 0,
	    translation = in->side[0].rule == NAT_RULE;
	__u64 hi = source_hi(made ? look->key.low_hi : look->key.high_hi);
	__u64 lo = made ? look->key.low_lo : look->key.high_lo;
	if (half_open && !translation)
		count_source(cf, source_hash(cf, hi, lo));
	if ((g->states + c->pending >= cf->max_states && !reclaim(c, cf)) ||
	    !find_place(c, cf, p, look)) {
		if (half_open && !translation)
			uncount_source(cf, source_hash(cf, hi, lo));
		return adopt_error(REASON_STATES_FULL);
	}
	__u32 place = look->place, way = place % WAYS;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	if (!s || !t)
		return 0;
	write_ends(s, way, &look->key);
	write_sides(in, s, way);
	if (translation) {
		side_partner(low_side(s, way)) = number(partner);
		if (!(flags & META_WIRE))
			count_nat(pod_in(high_side(s, way)), 1);
	} else if (flags & META_TRACKED)
		adopt_track(c, look, limit, walk, low_side(s, way), high_side(s, way), made);
	count_states(c, cf, 1);
	if (half_open)
		count_half_open(1);
	__sync_lock_test_and_set(&t->tag[way], half_open ? look->tag | TAG_HALF_OPEN : look->tag);
	clear_hint(place); // that of an earlier state with this tag
	c->created++;
	in->place = place;
	if (!resolve_duplicates(c, place))
		return 0;
	struct set *o = translation && exists(partner) ? set_at(number(partner) / WAYS) : NULL;
	if (o)
		side_partner(low_side(o, number(partner))) = place;
	return ADOPT_MADE;
}

// adopt_one adopts what the call after the one with the number n describes.
static long adopt_one(__u32 n, void *unused)
{
	__u32 at = n + 1;
	struct cpu *c = this_cpu();
	struct call *before = bpf_map_lookup_elem(&calls, &n);
	struct call *in = bpf_map_lookup_elem(&calls, &at);

	if (!c || !before || !in)
		return 1;
	if (in->count & ADOPT_PARTNER) {
		in->result = 0;
		if (before->result < 0 || (!before->result && !(in->count & ADOPT_MERGE)))
			return 0;
		in->place = before->place + 1;
	}
	int r = adopt(c, at);
	in->result = r == ADOPT_FOUND ? merge(c, c->look.place, at) : r;
	return 0;
}
