// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Creation of states, docs/design/0003-evaluation.md section 5.
#pragma once

#include "table_insert.h"
#include "cookie_repeat.h"
#include "cookie_state.h"
#include "ipsec.h"

// fill writes the new state at look->place, for the rule with an id.
static __always_inline void fill(const struct packet *p, const struct lookup *look,
				 const struct limit *limit, struct set *s, __u32 way, __u32 id,
				 __u32 meta, __u8 proto)
{
	struct side *low = low_side(s, way), *high = high_side(s, way);
	struct side *d = look->from ? high : low;
	__u8 f = p->tcp_flags;

	way &= WAYS - 1;
	write_ends(s, way, &look->key);
	__builtin_memset(low, 0, sizeof(*low));
	__builtin_memset(high, 0, sizeof(*high));
	if (proto == PROTO_TCP && (f & (TH_SYN | TH_ACK)) != TH_SYN)
		meta |= META_LOOSE;
	if (exists(limit->track))
		meta |= META_TRACKED;
	if (p->dir == DIR_IN)
		meta |= META_CAME_IN;
	// Plain stores set what the first packet shows: no other CPU sees the entry yet, and an
	// atomic operation would wait for its cold line.
	__u32 first = META_MADE | (proto != PROTO_TCP ? SIDE_SEEN :
				   meta & META_LOOSE  ? picked_flags(p, SCALE_UNKNOWN) :
							first_flags(p));
	low->flags = meta | META_HALF_OPEN | (look->from ? 0 : first);
	high->flags = meta | (look->from ? first : 0);
	low->rule = high->rule = id;
	low->track = limit->track.plus1;
	// The other end has sent nothing. The time of its last packet is that of the state, not 0:
	// the clock may be at 0.
	low->created = low->last = high->last = p->now;
	side_track_era(high) = exists(limit->track) ? limit->era : 0;
	if (proto == PROTO_TCP) {
		if (meta & META_LOOSE)
			pick_up(d, p, SCALE_UNKNOWN, 0);
		else
			begin(d, p);
		return;
	}
	if (proto == PROTO_SCTP) {
		struct side *o = look->from ? low : high;
		set_sctp_tag(d, o, p);
		set_sctp_ask(d, o, p);
		if (chunk_ends(p))
			set_flags(d, SIDE_RST);
	}
	d->packets = 1; // not touch, which would read the entry
	d->bytes = p->len;
}

// undo_enter_track undoes enter_track for a state that was not made.
static __always_inline void undo_enter_track(const struct limit *limit)
{
	if (exists(limit->track))
		add_track(track_at(limit->track), limit->era, -1ULL);
}

static __always_inline void begin_cookies(struct gauge *g, struct config *cf)
{
	__u32 mode = READ_ONCE(g->cookies);

	if (mode != COOKIES_ON && cf->cookies & COOKIE_USE &&
	    __sync_val_compare_and_swap(&g->cookies, mode, COOKIES_ON) == mode)
		__sync_fetch_and_add(&g->cookie_turns, 1);
}

// Half-open states may exceed their limit by one in HALF_OPEN_OVER.
enum { HALF_OPEN_OVER = 8 };

// reserve_state makes sure that there may be one more state, and returns 0 or the reason why not.
static __always_inline int reserve_state(struct cpu *c, struct config *cf)
{
	const struct cookie *cookie = &c->cookie;
	struct gauge *g = gauges_now();

	if (!g)
		return REASON_STATES_FULL;
	if (unlikely(g->half_open - g->answered >= cf->max_half_open / COOKIES_FROM))
		begin_cookies(g, cf);
	__s64 over = g->half_open - (__s64)cf->max_half_open;
	if (over >= 0 && cookie->offer != OFFER_REDEEMED) {
		// Where the two sets hold no half-open state the new one exceeds the limit. Later
		// ones make up for it: they evict two.
		if (!evict(c, cf->sets)) {
			if (over >= cf->max_half_open / HALF_OPEN_OVER)
				return REASON_HALF_OPEN_FULL;
		} else if (over > 0) {
			evict(c, cf->sets);
		}
	}
	if (g->states + c->pending >= cf->max_states && !reclaim(c, cf) &&
	    !nat_evict_for(c, NAT_ALL))
		return REASON_STATES_FULL;
	return 0;
}

static __always_inline void count_new(struct cpu *c, struct config *cf)
{
	count_states(c, cf, 1);
	count_half_open(1);
	c->created++;
}

// count_limit counts the state to be made in the track of a rule with limit. It returns 0 or the
// reason why it may not be made.
static __always_inline int count_limit(struct cpu *c, struct lookup *look, struct limit *limit,
				       struct code *r)
{
	struct key *k = &look->key;

	limit->track = NONE;
	if (r->state != STATE_LIMIT && r->state != STATE_SET_LIMIT)
		return 0;
	mask_state(limit, r, (struct address *)&k->low_hi, (struct address *)&k->high_hi, k->ports,
		   k->proto, !look->from);
	limit->flow = (__u32)look->hash | 1;
	limit->track = maybe_from(enter_limit(c, r->limit));
	if (exists(limit->track))
		return 0;
	return limit->none ? REASON_TRACKS_FULL : REASON_LIMIT;
}

// cookie_instead: a SYN cookie answers the packet, or has just answered it, so no state is made. It
// returns 0 if not, else the reason.
static __always_inline int cookie_instead(struct cpu *c, const struct packet *p, struct verdict *v,
					  const struct cookie *cookie, struct code *r)
{
	struct forwarding *f = forwarding_settings();
	int offered = cookie->offer == OFFER_COOKIE || cookie->offer == OFFER_REPEATED;

	if (likely(!offered) || r->action != ACT_ALLOW || r->flags & (CODE_DEFER | CODE_PIPE) ||
	    v->state == USE_NEW)
		return 0;
	if (cookie->offer == OFFER_REPEATED)
		return REASON_COOKIE_REPEATED;
	// IPsec policies are asked last: in a flood about SYNs that would get a cookie, not about
	// all.
	if (!f || (unlikely(f->policies) && protected(c, POLICY_OUT, 1, 0)))
		return 0;
	record_answered(p, cookie);
	v->answer = ANSWER_COOKIE;
	return REASON_COOKIE;
}

// evict_own makes space among the half-open states of limit->source, which has `had`. It returns 0
// or the reason why there is none.
static __always_inline int evict_own(struct cpu *c, __u32 had)
{
	__u32 found = source_victim(c, had); // struct maybe, or SOURCE_REFUSED

	if (found == SOURCE_REFUSED)
		return REASON_HALF_OPEN_SOURCE;
	if (exists(maybe_from(found)))
		evict_at(c, number(maybe_from(found)), GONE_SOURCE);
	return 0;
}

// create_state makes a state for the rule in a slot and returns 0, or the reason why there is none.
__noinline int create_state(struct cpu *c, __u32 slot)
{
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_STATES_FULL;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct limit *limit = &c->limit;
	count_proved(c, look);
	struct code *r = code_of(&c->walk, slot);
	if (!r)
		return REASON_STATES_FULL;
	if (look->keyed != KEY_SET || look->is_error)
		return REASON_NO_KEY;
	if (unlikely(c->nat.make == MAKE_REFUSAL))
		return REASON_NO_BACKEND;
	if (look->key.proto == PROTO_TCP && bad_flags(p->tcp_flags))
		return REASON_TCP_FLAGS;
	key_hash(look, cf, r->flow);
	int why = count_limit(c, look, limit, r);
	if (why)
		return why;
	why = cookie_instead(c, p, &c->verdict, &c->cookie, r);
	if (why) {
		undo_enter_track(limit);
		return why;
	}
	const struct key *k = &look->key;
	__u64 source = source_hash(cf, source_hi(look->from ? k->high_hi : k->low_hi), p->src_lo);
	__u32 had = count_source(cf, source),
	      many = had >= cf->source_from && c->cookie.offer != OFFER_REDEEMED;
	if (unlikely(many)) {
		limit->source = source;
		why = evict_own(c, had);
	}
	if (!why)
		why = reserve_state(c, cf);
	if (!why && !find_place(c, cf, p, look))
		why = REASON_STATES_FULL;
	__u32 place = look->place, way = place % WAYS;
	struct set *s = why ? NULL : set_at(place / WAYS);
	struct tag_line *tags = why ? NULL : tags_at(place / WAYS);
	if (!s || !tags) {
		undo_enter_track(limit);
		uncount_source(cf, source);
		return why ? why : REASON_STATES_FULL;
	}
	fill(p, look, limit, s, way, r->id, r->flags & CODE_LIBERAL ? META_LIBERAL : 0,
	     look->key.proto);
	if (unlikely(c->cookie.offer == OFFER_REDEEMED))
		establish(c, place);
	count_new(c, cf);
	__sync_lock_test_and_set(&tags->tag[way], look->tag | TAG_HALF_OPEN);
	if (unlikely(many))
		record_turn(c, place);
	new_phase(c, place, look->key.proto); // a first packet may also end its flow
	resolve_duplicates(c, place);
	record_first(look, r->flow, LOOK_HIT, r->id);
	look->first_new = 1;
	return 0;
}
