// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Look-up of states, docs/design/0003-evaluation.md section 4.
#pragma once

#include "prototypes.h"
#include "sweep_hint.h"
#include "track.h"

// Results of a look-up. LOOK_DROP + a reason: the packet is dropped for that reason.
enum look { LOOK_MISS, LOOK_HIT, LOOK_UNTOUCHED, LOOK_DROP = 16 };

static __always_inline int look_drop(int reason)
{
	return LOOK_DROP + reason;
}

static __always_inline int look_drops(int found)
{
	return found >= LOOK_DROP;
}

static __always_inline int look_reason(int found)
{
	return found - LOOK_DROP;
}

static __always_inline int look_result(int r)
{
	switch (r) {
	case RES_HIT:
		return LOOK_HIT;
	case RES_UNTOUCHED:
		return LOOK_UNTOUCHED;
	case RES_BAD_FLAGS:
		return look_drop(REASON_TCP_FLAGS);
	case RES_BAD_RST:
		return look_drop(REASON_TCP_RST);
	case RES_BAD_ACK:
		return look_drop(REASON_TCP_ACK);
	case RES_BAD_WINDOW:
		return look_drop(REASON_TCP_WINDOW);
	case RES_BAD_TAG:
		return look_drop(REASON_SCTP_TAG);
	}
	return look_drop(REASON_ICMP_SEQ);
}

// slot_of returns the slot of a rule by its id, none if the Program has no such rule.
static __always_inline struct maybe slot_of(const struct walk *walk, struct header *h, __u32 id)
{
	__u32 index = id & 0xffff;
	struct row *r = row_of(walk, h->slots + index / ROW_U32);
	if (!r)
		return NONE;
	__u32 v = ((__u32 *)r)[index % ROW_U32];
	return v >> 16 == id >> 16 && v >> 16 ? some(v & 0xffff) : NONE;
}

// find_rule returns the rule with an id and sets walk->slot. Most rules lie at the slot of their
// index: that is tried first.
static __always_inline struct code *find_rule(struct walk *walk, void *image, __u32 id)
{
	__u32 index = id & 0xffff;
	struct code *r = code_in(image, index);

	if (r && r->id == id) {
		walk->slot = index;
		return r;
	}
	struct header *h = (struct header *)row_in(image, 0);
	struct maybe slot = h ? slot_of(walk, h, id) : NONE;
	if (!exists(slot))
		return NULL;
	walk->slot = number(slot);
	return code_in(image, number(slot));
}

// masked_tuple sets m to what a limit counts by. One host may have all addresses of a /64, so that
// is an IPv6 source, of its link if it is link-local. The destination is without its link. ports
// has that of the source << 16 | that of the destination. A track that an earlier version made
// for another source is not found again, and counts its states until they end.
static __always_inline void masked_tuple(struct masked *m, struct code *r, struct address *src,
					 struct address *dst, __u32 ports, __u8 proto)
{
	__u8 mask = r->mask;
	__u64 src_hi = source_hi(src->hi), dst_hi = off_link(dst->hi);

	m->src_hi = mask & LIMIT_SRC_ADDR ? src_hi : 0;
	m->src_lo = mask & LIMIT_SRC_ADDR && is_mapped(src_hi, src->lo) ? src->lo : 0;
	m->dst_hi = mask & LIMIT_DST_ADDR ? dst_hi : 0;
	m->dst_lo = mask & LIMIT_DST_ADDR ? dst->lo : 0;
	m->ports = ports & ((mask & LIMIT_SRC_PORT ? 0xffff0000 : 0) |
			    (mask & LIMIT_DST_PORT ? 0xffff : 0));
	m->rule = r->id;
	m->proto = proto;
	m->pad = 0;
}

// mask_state sets limit->masked for an existing state.
static __always_inline void mask_state(struct limit *limit, struct code *r, struct address *low,
				       struct address *high, __u32 ports, __u8 proto, int made)
{
	if (made)
		masked_tuple(&limit->masked, r, low, high, ports, proto);
	else
		masked_tuple(&limit->masked, r, high, low, ports << 16 | ports >> 16, proto);
}

// take_track records in a state the track that was entered last.
static __always_inline void take_track(const struct limit *limit, struct side *low,
				       struct side *high, struct maybe track)
{
	low->track = track.plus1;
	side_track_era(high) = limit->era;
}

// mask_at sets limit->masked for the state at a place, and returns the limit of its rule, 0 if the
// rule is gone.
__noinline __u32 mask_at(struct cpu *c, __u32 place)
{
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;
	if (!c || !s || !t)
		return 0;
	struct limit *limit = &c->limit;
	struct walk *walk = &c->walk;
	void *image = image_of(walk);
	struct side *low = low_side(s, way);
	__u32 slot = walk->slot; // the walk is at this rule
	struct code *r = image ? find_rule(walk, image, low->rule) : NULL;
	__u64 tag = READ_ONCE(t->tag[way]);
	walk->slot = slot;
	if (!r)
		return 0;
	limit->flow = 0;
	mask_state(limit, r, (struct address *)&s->addr[way].low_hi,
		   (struct address *)&s->addr[way].high_hi, tag >> 32, tag_proto(tag),
		   low->flags & META_MADE);
	return r->limit;
}

// is_over: the TCP connection or SCTP association of a state has ended.
static __always_inline int is_over(struct side *low, struct side *high, __u8 proto)
{
	int phase = phase_of(low, high, proto);

	return phase == PHASE_CLOSED || phase == PHASE_RESET;
}

// enter_again has a state whose track was given to another tuple enter one of its own tuple again,
// as one that has proved itself. The state may end or move at this moment: META_TRACKED is away
// while the track changes, and who takes that flag counts the state out.
static __always_inline void enter_again(struct cpu *c, struct set *s, struct tag_line *t,
					__u32 place)
{
	const struct limit *limit = &c->limit;
	__u32 way = place % WAYS;
	__u64 tag = READ_ONCE(t->tag[way]);
	__u32 most = mask_at(c, place);
	struct side *low = low_side(s, way), *high = high_side(s, way);

	if (!most || !(__sync_fetch_and_and(&low->flags, ~META_TRACKED) & META_TRACKED))
		return;
	struct maybe at = maybe_from(enter_limit(c, most));
	if (!exists(at)) {
		remove_state(c, place, tag, GONE_RECLAIMED);
		return;
	}
	take_track(limit, low, high, at);
	if (!add_track(track_at(at), limit->era, TRACK_ONE_PROVED))
		return;
	or_ordered(&low->flags, META_TRACKED | META_TRACK_PROVED);
	if ((READ_ONCE(t->tag[way]) & TAG_MASK) != TAG_LIVE || is_over(low, high, tag_proto(tag)))
		leave_track(s, way);
}

// count_proved_in_track counts a state that has proved itself as proved in its track, which is not
// evicted from then on. If the track was given to another tuple, the state enters one of its own
// tuple again. If no track is free, or the limit is reached, the state is removed like a half-open
// one.
__noinline int count_proved_in_track(struct cpu *c, __u32 place)
{
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	if (!c || !s || !t)
		return 0;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	if (!(READ_ONCE(low->flags) & META_TRACKED))
		return 0;
	if (!add_track(track_at(track_of(low)), side_track_era(high), TRACK_ONE_PROVED))
		enter_again(c, s, t, place);
	// The state may have left its track at this moment.
	else if (!(__sync_fetch_and_or(&low->flags, META_TRACK_PROVED) & META_TRACKED))
		add_track(track_at(track_of(low)), side_track_era(high), -TRACK_ONE_PROVED);
	return 0;
}

// new_phase follows a change of a state: one that has proved itself is no longer half-open, and one
// that is closed counts in no track. It sets look->proved if count_proved_in_track has to follow:
// the stack is too deep here.
__noinline int new_phase(struct cpu *c, __u32 place, __u8 proto)
{
	struct set *s = set_at(place / WAYS);
	if (!c || !s)
		return 0;
	struct lookup *look = &c->look;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	int phase = phase_of(low, high, proto);
	int over = phase == PHASE_CLOSED || phase == PHASE_RESET;

	if (low->flags & META_HALF_OPEN && phase != PHASE_OPENING) {
		if (phase == PHASE_ANSWERED)
			mark_answered(place);
		else if (!promote(place))
			retry_promotion(low, high, proto);
		else if (low->flags & META_TRACKED && !over)
			look->proved = some(place);
	}
	if (!over)
		return 0;
	leave_track(s, place);
	if (proto == PROTO_TCP)
		mark_ending(place); // the first packet may have ended it
	return 0;
}

// count_proved completes what new_phase has begun, before the packet looks another state up, or
// makes one, and at its end.
static __always_inline void count_proved(struct cpu *c, struct lookup *look)
{
	struct maybe place = look->proved;

	if (likely(!exists(place)))
		return;
	look->proved = NONE;
	count_proved_in_track(c, number(place));
}

// step_error evaluates an ICMP error about a packet that side o sent.
static __always_inline int step_error(struct side *d, struct side *o, const struct packet *p,
				      const struct lookup *look, int liberal)
{
	if (look->key.proto == PROTO_TCP && !loose(d, o) && !liberal) {
		// the start may lie more than 2^31 back
		__u32 first = d->flags & SIDE_ACKED ? d->ack : o->start;
		if (!(o->flags & SIDE_SEEN) || !between(first, look->quote_seq, o->end))
			return RES_BAD_ICMP;
	}
	__sync_fetch_and_add(&d->packets, 1);
	__sync_fetch_and_add(&d->bytes, p->len);
	return RES_UNTOUCHED;
}

// step_rare advances a state by a packet of SCTP, or an ICMP error.
__noinline int step_rare(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	if (!c || !cf || !s)
		return RES_UNTOUCHED;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = look->from ? high : low, *o = look->from ? low : high;

	if (look->is_error)
		return step_error(d, o, p, look, cf->liberal || d->flags & META_LIBERAL);
	return step_sctp(d, o, p);
}

// unproved: this side, which began the flow, has not sent since the other has answered.
static __always_inline int unproved(__u32 flags)
{
	return (flags & (META_PEER | META_MADE | SIDE_PROVED)) == (META_PEER | META_MADE);
}

// from_port_client: this side is the client of a published port. A packet that it sends to the pod
// itself belongs to another flow. The fast path translates nothing, so it sees only the latter.
static __always_inline int from_port_client(__u32 flags)
{
	return (flags & META_PORT_CLIENT) == META_PORT_CLIENT;
}

// step advances the live state at a place, which is look->place, by the packet. It returns
// LOOK_MISS if the packet does not belong to it.
__noinline int step(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	if (!c || !cf || !s)
		return LOOK_MISS;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = look->from ? high : low, *o = look->from ? low : high;
	__u8 proto = look->key.proto;
	__u32 mine = d->flags;
	int r;

	if (mine & META_PEER && !unproved(mine) && !look->is_error &&
	    p->now <= d->last + lifetime(cf, PHASE_ESTABLISHED, proto)) {
		// Not TCP, SCTP or an ICMP error. Both ends were seen, this one recently, so the
		// other side's line need not be read.
		touch(d, p);
		return LOOK_HIT;
	}
	if (unlikely(expired(cf, low, high, proto, p->now))) {
		remove_state(c, place, look->tag, GONE_EXPIRED);
		return LOOK_MISS;
	}
	if (unlikely(look->is_error || proto == PROTO_SCTP)) {
		r = step_rare(c, place);
	} else if (proto == PROTO_TCP) {
		r = step_tcp(d, o, p);
		// A connection ends by a reset, or by the second FIN and its acknowledgement.
		if (r == RES_HIT &&
		    ((d->flags | o->flags) & SIDE_RST || d->flags & o->flags & SIDE_FIN))
			mark_ending(place);
		if (unlikely(r == RES_HIT && mine & META_REDEEMED)) // evaluated as what it is
			__sync_fetch_and_and(&d->flags, ~META_REDEEMED);
		if (r > RES_BAD_FLAGS && (cf->liberal || mine & META_LIBERAL))
			r = RES_UNTOUCHED;
	} else {
		touch(d, p);
		if (o->flags & SIDE_SEEN) {
			set_flags(d, mine & META_MADE ? META_PEER | SIDE_PROVED : META_PEER);
			set_flags(o, META_PEER);
		}
		r = RES_HIT;
	}
	if (r == RES_RECYCLE) {
		remove_state(c, place, look->tag, GONE_RECYCLED);
		return LOOK_MISS;
	}
	if (r == RES_HIT && low->flags & (META_HALF_OPEN | META_TRACKED))
		new_phase(c, place, proto);
	return look_result(r);
}

// record_first records the state of a flow name for the second evaluation of the same packet, which
// neither looks it up nor advances it again.
static __always_inline void record_first(struct lookup *look, __u32 flow, __u8 found, __u32 rule)
{
	look->first_place = READ_ONCE(look->place);
	look->first_tag = look->tag;
	look->first_flow = some(flow);
	look->first_look = found;
	look->first_rule = rule;
	look->first_new = 0;
}

// was_missed: the fast path has found no state of a flow name. Hash and tag of the key are then
// set.
static __always_inline int was_missed(struct lookup *look, __u32 flow)
{
	if (!holds(look->missed, flow))
		return 0;
	look->missed = NONE;
	look->hashed = 1;
	look->key.flow = flow;
	return 1;
}

// look_up looks for the packet's state of a flow name. On anything but a miss walk->slot is the
// slot of the state's rule.
__noinline int look_up(struct cpu *c, __u32 flow)
{
	struct config *cf = settings();
	if (!c || !cf)
		return LOOK_MISS;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	count_proved(c, look);
	void *image = image_of(walk);
	if (!image || look->keyed != KEY_SET)
		return LOOK_MISS;
	if (p->second_evaluation && holds(look->first_flow, flow) &&
	    find_rule(walk, image, look->first_rule))
		return look->first_look;
	if (was_missed(look, flow))
		return LOOK_MISS;
	key_hash(look, cf, flow);
	if (!find(c, look, cf))
		return LOOK_MISS;
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return LOOK_MISS;
	struct side *d = look->from ? high_side(s, place) : low_side(s, place);
	struct code *state_rule = find_rule(walk, image, d->rule);
	if (!state_rule) {
		remove_state(c, place, look->tag, GONE_RULE);
		return LOOK_MISS;
	}
	__u32 rule = state_rule->id;
	struct tag_line *t = tags_at(place / WAYS);
	// another flow has taken the entry meanwhile
	if (!t || !same_tag(READ_ONCE(t->tag[place % WAYS]), look->tag))
		return LOOK_MISS;
	__u32 published = READ_ONCE(d->flags) & META_PUBLISHED;
	published |= READ_ONCE(c->nat.make);
	opaque(published); // otherwise each value of the flags is a path to the verifier
	opaque(place);	   // the same for is_other_flow
	// what a lower device has translated does not follow the translation again
	if (unlikely(published) && !(cf->uppers && c->passed_before) && is_other_flow(c, place))
		return look_drop(REASON_NAT_PORTS);
	int found = step(c, place);
	if (found == LOOK_HIT || found == LOOK_UNTOUCHED)
		record_first(look, flow, found, rule);
	return found;
}
