// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Creation of states, docs/design/0003-evaluation.md section 5.
#pragma once

#include "evict.h"
#include "nat_evict.h"
#include "repeat.h"

// reclaimable returns the tag of the state at a place if it has expired or its TCP connection is
// closed, 0 if not. It does not remove the state itself: its stack and that of remove_state would
// add up.
__noinline __u64 reclaimable(__u32 place)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;
	if (!c || !cf || !s || !t)
		return 0;
	__u64 tag = READ_ONCE(t->tag[way]);
	if ((tag & TAG_MASK) != TAG_LIVE)
		return 0;
	struct side *low = low_side(s, way), *high = high_side(s, way);
	if (low->rule == NAT_RULE)
		return nat_weigh(place, 0) <= NAT_CLOSED ? tag : 0;
	int phase = phase_of(low, high, tag_proto(tag));
	if (phase != PHASE_CLOSED && phase != PHASE_RESET &&
	    !expired(cf, low, high, tag_proto(tag), c->p.now))
		return 0;
	return tag;
}

__noinline int strays(__u32 place)
{
	struct cpu *c = this_cpu();
	struct set *s = set_at(place / WAYS);
	if (!c || !s)
		return 0;
	struct pkt *p = &c->p;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = p->from ? high : low, *o = p->from ? low : high;
	__u32 mine = d->flags;
	if (p->dir != DIR_IN || p->second || p->is_error)
		return 0;
	if (p->make ? mine & META_PUBLISHED : p->translated || !calls_port(mine))
		return 0;
	// It is over, or the SYN begins it again.
	if (reclaimable(place))
		return 0;
	return p->key.proto != PROTO_TCP || !bare_syn(p->tcp_flags) || o->flags & SIDE_SEEN ||
	       !(mine & SIDE_SYN) || p->seq == d->start;
}

__always_inline int reclaim_at(__u32 place)
{
	__u64 tag = reclaimable(place);

	return tag && remove_state(place, tag, GONE_RECLAIMED);
}

// reclaim_dead frees such an entry in one of the two sets of p->hash.
__noinline int reclaim_dead(__u32 sets)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	__u32 a = first_set(c->p.hash, sets) * WAYS, b = second_set(c->p.hash, sets) * WAYS;
	for (int i = 0; i < WAYS; i++) {
		if (reclaim_at(a + i) || reclaim_at(b + i))
			return 1;
	}
	return 0;
}

// reclaim frees an entry in one of the two sets of p->hash: dead ones first, then half-open ones,
// then translations.
__always_inline int reclaim(struct config *cf, struct pkt *p)
{
	return reclaim_dead(cf->sets) || evict(cf->sets) || nat_evict_sets(cf->sets);
}

// pick counts the vacant entries of a set in p->vacant and puts one of them into p->way.
__always_inline void pick(struct pkt *p, struct tag_line *t, __s64 now)
{
	WRITE_ONCE(p->vacant, 0);
	for (int i = 0; i < WAYS; i++) {
		if (!vacant(READ_ONCE(t->tag[i]), now))
			continue;
		WRITE_ONCE(p->vacant, READ_ONCE(p->vacant) + 1);
		WRITE_ONCE(p->way, i);
	}
}

// claim_picked claims the entry that was picked in set n.
__always_inline int claim_picked(struct pkt *p, struct tag_line *t, __u32 n, __s64 now)
{
	__u32 way = READ_ONCE(p->way) & (WAYS - 1);
	__u64 old = READ_ONCE(t->tag[way]);

	if (!vacant(old, now))
		return 0;
	if (__sync_val_compare_and_swap(&t->tag[way], old, slow_claim(p->tag)) != old)
		return 0;
	p->place = n * WAYS + way;
	return 1;
}

// claim_spare takes the entry that the look-up found, by the tag of a claim.
__always_inline int claim_spare(struct pkt *p, __u64 claim)
{
	__u32 place = p->spare - 1, way = place % WAYS;
	struct tag_line *t = p->spare ? tags_at(place / WAYS) : NULL;
	if (!t)
		return 0;
	__u64 old = READ_ONCE(t->tag[way]);
	if (!vacant(old, p->now) || __sync_val_compare_and_swap(&t->tag[way], old, claim) != old)
		return 0;
	p->place = place;
	return 1;
}

// unclaim frees an entry that was claimed and not published.
__always_inline void unclaim(struct pkt *p, __u32 place)
{
	struct tag_line *t = tags_at(place / WAYS);

	if (t)
		__sync_lock_test_and_set(&t->tag[place & (WAYS - 1)], free_tag(p->now));
}

// claim takes an entry for p->key: in the emptier of its two sets, which fills the table evenly. It
// sets p->place. With no_wait it also takes an entry that ended just now.
__noinline int claim(__u32 no_wait)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct pkt *p = &c->p;
	__u32 an = first_set(p->hash, cf->sets), bn = second_set(p->hash, cf->sets);
	struct tag_line *a = tags_at(an), *b = tags_at(bn);
	if (!a || !b)
		return 0;
	__s64 now = p->now + (no_wait ? (__s64)REST_TICKS << TICK_SHIFT : 0);
	for (int i = 0; i < 4; i++) {
		pick(p, b, now);
		WRITE_ONCE(p->vacant_b, READ_ONCE(p->vacant));
		pick(p, a, now);
		if (READ_ONCE(p->vacant) >= READ_ONCE(p->vacant_b)) {
			if (!READ_ONCE(p->vacant))
				return 0;
			if (claim_picked(p, a, an, now))
				return 1;
		} else {
			pick(p, b, now);
			if (claim_picked(p, b, bn, now))
				return 1;
		}
	}
	return 0;
}

// other_set returns the set in which the entry at a place could lie as well.
__always_inline __u32 other_set(struct config *cf, struct set *s, __u64 tag, __u32 n, __u32 way)
{
	__u64 rest = tag & 0xffffffffffff0000ULL;
	__u64 hash = hash5(cf->seed, s->addr[way].low_hi, s->addr[way].low_lo, s->addr[way].high_hi,
			   s->addr[way].high_lo, rest);
	__u32 a = first_set(hash, cf->sets), b = second_set(hash, cf->sets);

	return a == n ? b : a;
}

// begin_move claims the place in its other set to which the entry at a place will move, if there is
// a vacant entry. The tag of the old place decides whether the entry was moved, promoted or
// removed, and the flag there whether it has left its track: each happens once. At every moment
// look-ups find the entry in one of its places. A packet that found the old place and writes to it
// after the copy loses what it wrote, the numbers of one segment. The next segment that counts
// raises them.
__noinline int begin_move(__u32 place)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u32 n = place / WAYS, way = place % WAYS;
	struct set *s = set_at(n);
	struct tag_line *from = tags_at(n);
	if (!c || !cf || !s || !from)
		return 0;
	struct pkt *p = &c->p;
	__u64 tag = READ_ONCE(from->tag[way]);
	// the halves of a translation refer to each other by place
	if ((tag & TAG_MASK) != TAG_LIVE || low_side(s, way)->rule == NAT_RULE)
		return 0;
	__u32 to = other_set(cf, s, tag, n, way);
	if (to == n)
		return 0;
	struct set *o = set_at(to);
	struct tag_line *t = tags_at(to);
	if (!o || !t)
		return 0;
	pick(p, t, p->now);
	__u32 at = READ_ONCE(p->way) & (WAYS - 1);
	__u64 old = READ_ONCE(t->tag[at]);
	if (!READ_ONCE(p->vacant) || !vacant(old, p->now))
		return 0;
	if (__sync_val_compare_and_swap(&t->tag[at], old, fast_claim(tag)) != old)
		return 0;
	// From here on this CPU owns the old place. Look-ups find it until they find the new one.
	// the state ended meanwhile
	if (__sync_val_compare_and_swap(&from->tag[way], tag, tag ^ TAG_LIVE ^ TAG_MOVING) != tag) {
		__sync_lock_test_and_set(&t->tag[at], free_tag(p->now));
		return 0;
	}
	p->moved = to * WAYS + at + 1;
	return p->moved;
}

// end_move completes what begin_move began at a place.
__noinline int end_move(__u32 place)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	__u32 moved = c->p.moved - 1, way = place % WAYS, at = moved % WAYS;
	struct set *s = set_at(place / WAYS), *o = set_at(moved / WAYS);
	struct tag_line *from = tags_at(place / WAYS), *t = tags_at(moved / WAYS);
	if (!s || !o || !from || !t)
		return 0;
	__u64 tag = READ_ONCE(from->tag[way]) ^ TAG_LIVE ^ TAG_MOVING;
	__u32 flags = __sync_fetch_and_and(&low_side(s, way)->flags, ~META_TRACKED);
	o->addr[at] = s->addr[way];
	*low_side(o, at) = *low_side(s, way);
	*high_side(o, at) = *high_side(s, way);
	low_side(o, at)->flags |= flags & META_TRACKED;
	__sync_lock_test_and_set(&t->tag[at], tag);
	__sync_lock_test_and_set(&from->tag[way], free_tag(c->p.now));
	return 1;
}

// move takes the entry at a place to its other set, if that has a vacant entry.
__always_inline int move(__u32 place)
{
	return begin_move(place) && end_move(place);
}

// move_one moves an entry out of the two sets of p->hash, so that they fill further before anything
// is evicted.
__noinline int move_one(__u32 unused)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return unused;
	struct pkt *p = &c->p;
	for (int i = 0; i < 2 * WAYS; i++) {
		__u32 n = i < WAYS ? first_set(p->hash, cf->sets) : second_set(p->hash, cf->sets);
		if (move(n * WAYS + i % WAYS))
			return 1;
	}
	return 0;
}

// find_place finds a place for p->key: a vacant one, one that becomes vacant by moving, or one that
// is reclaimed.
__always_inline int find_place(struct config *cf, struct pkt *p)
{
	if (claim_spare(p, slow_claim(p->tag)) || claim(0) || claim(1))
		return 1;
	if (move_one(0) && claim(1))
		return 1;
	return reclaim(cf, p) && claim(1);
}

// evict_double resolves a double insertion between the live entry at `place`, which is ours, and
// one at another place that has the same identity: of two live ones with the same key the one at
// the lower place stays. Ours also goes for an entry that fast_new is about to fill: fast_new may
// have looked for duplicates before ours was there, and if not, it makes another one. It returns 0
// if ours went.
__noinline int evict_double(__u32 place, __u32 other)
{
	struct cpu *c = this_cpu();
	struct set *s = set_at(other / WAYS);
	struct tag_line *t = tags_at(other / WAYS);
	if (!c || !s || !t || other == place)
		return 1;
	__u64 tag = READ_ONCE(t->tag[other % WAYS]);
	if (tag == fast_claim(c->p.tag)) {
		remove_state(place, c->p.tag, GONE_DOUBLE);
		return 0;
	}
	if (!same_tag(tag, c->p.tag) || !same_ends(s, other % WAYS, &c->p.key))
		return 1;
	if (other > place) {
		remove_state(other, c->p.tag, GONE_DOUBLE);
		return 1;
	}
	remove_state(place, c->p.tag, GONE_DOUBLE);
	c->p.place = other;
	return 0;
}

// settle checks whether two CPUs inserted p->key at once, and reports whether our entry, which is
// live, stays.
__noinline int settle(__u32 place)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 1;
	__u64 tag = c->p.tag;
	__u32 an = first_set(c->p.hash, cf->sets), bn = second_set(c->p.hash, cf->sets);
	struct tag_line *a = tags_at(an), *b = tags_at(bn);
	if (!a || !b)
		return 1;
	for (int i = 0; i < WAYS; i++) {
		if (unlikely(!((READ_ONCE(a->tag[i]) ^ tag) & TAG_IDENTITY) &&
			     !evict_double(place, an * WAYS + i)))
			return 0;
		if (unlikely(!((READ_ONCE(b->tag[i]) ^ tag) & TAG_IDENTITY) &&
			     !evict_double(place, bn * WAYS + i)))
			return 0;
	}
	return 1;
}

// fill writes the new state at p->place, for the rule with an id.
__always_inline void fill(struct pkt *p, struct set *s, __u32 way, __u32 id, __u32 meta, __u8 proto)
{
	struct side *low = low_side(s, way), *high = high_side(s, way);
	struct side *d = p->from ? high : low;
	__u8 f = p->tcp_flags;

	way &= WAYS - 1;
	s->addr[way].low_hi = p->key.low_hi;
	s->addr[way].low_lo = p->key.low_lo;
	s->addr[way].high_hi = p->key.high_hi;
	s->addr[way].high_lo = p->key.high_lo;
	__builtin_memset(low, 0, sizeof(*low));
	__builtin_memset(high, 0, sizeof(*high));
	if (proto == PROTO_TCP && (f & (TH_SYN | TH_ACK)) != TH_SYN)
		meta |= META_LOOSE;
	if (p->track)
		meta |= META_TRACKED;
	// Plain stores set what the first packet shows: no other CPU sees the entry yet, and an
	// atomic operation would wait for its cold line.
	__u32 first = META_MADE | (proto != PROTO_TCP ? SIDE_SEEN :
				   meta & META_LOOSE  ? picked_flags(p, SCALE_UNKNOWN) :
							first_flags(p));
	low->flags = meta | META_HALF_OPEN | (p->from ? 0 : first);
	high->flags = meta | (p->from ? first : 0);
	low->rule = high->rule = id;
	low->track = p->track;
	// The other end has sent nothing; the time of its last packet is that of the state, and not
	// 0, which the clock may show.
	low->created = low->last = high->last = p->now;
	high->created = p->track ? p->track_era : 0;
	if (proto == PROTO_TCP) {
		if (meta & META_LOOSE)
			pick_up(d, p, SCALE_UNKNOWN, 0);
		else
			begin(d, p);
		return;
	}
	if (proto == PROTO_SCTP) {
		set_sctp_tag(d, p);
		if (chunk_ends(p))
			set_flags(d, SIDE_RST);
	}
	d->packets = 1; // not touch, which would read the entry
	d->bytes = p->len;
}

// forget_track undoes enter_track for a state that was not made.
__always_inline void forget_track(struct pkt *p)
{
	if (p->track)
		add_track(track_at(p->track - 1), p->track_era, -1ULL);
}

__always_inline void begin_cookies(struct gauge *g, struct config *cf)
{
	__u32 mode = READ_ONCE(g->cookies);

	if (mode != COOKIES_ON && cf->cookies & COOKIE_USE &&
	    __sync_val_compare_and_swap(&g->cookies, mode, COOKIES_ON) == mode)
		__sync_fetch_and_add(&g->cookie_turns, 1);
}

// Half-open states may exceed their limit by one in HALF_OPEN_OVER.
enum { HALF_OPEN_OVER = 8 };

// reserve_state makes sure that there may be one more state, and returns 0 or the reason why not.
__always_inline int reserve_state(struct cpu *c, struct config *cf)
{
	struct pkt *p = &c->p;
	__u32 zero = 0;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);

	if (!g)
		return REASON_STATES_FULL;
	if (unlikely(g->half_open - g->answered >= cf->max_half_open / COOKIES_FROM))
		begin_cookies(g, cf);
	__s64 over = g->half_open - (__s64)cf->max_half_open;
	if (over >= 0 && p->offer != OFFER_REDEEMED) {
		// Where the two sets hold no half-open state the new one exceeds the limit. Later
		// ones make up for it: they evict two.
		if (!evict(cf->sets)) {
			if (over >= cf->max_half_open / HALF_OPEN_OVER)
				return REASON_HALF_OPEN_FULL;
		} else if (over > 0) {
			evict(cf->sets);
		}
	}
	if (g->states + c->pending >= cf->max_states && !reclaim(cf, p) && !nat_evict(0))
		return REASON_STATES_FULL;
	return 0;
}

// count_new counts the state that is being made.
__always_inline void count_new(struct cpu *c, struct config *cf)
{
	count_states(c, cf, 1);
	count_half_open(1);
	c->created++;
}

// create_state makes a state for the rule in a slot and returns 0, or the reason why there is none.
__noinline int create_state(__u32 slot)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_STATES_FULL;
	struct pkt *p = &c->p;
	keep_proved(p);
	struct code *r = code_of(p, slot);
	if (!r)
		return REASON_STATES_FULL;
	if (p->keyed != KEY_SET || p->is_error)
		return REASON_NO_KEY;
	if (p->key.proto == PROTO_TCP && bad_flags(p->tcp_flags))
		return REASON_TCP_FLAGS;
	key_hash(p, cf, r->flow);
	p->track = 0;
	if (r->state == STATE_LIMIT || r->state == STATE_SET_LIMIT) {
		__u32 ports = p->from ? p->key.ports << 16 | p->key.ports >> 16 : p->key.ports;
		masked_tuple(&p->masked, r, (struct address *)&p->src_hi,
			     (struct address *)&p->dst_hi, ports, p->key.proto);
		p->track = enter_limit(r->limit);
		if (!p->track)
			return p->no_track ? REASON_TRACKS_FULL : REASON_LIMIT;
	}
	int offered = p->offer == OFFER_COOKIE || p->offer == OFFER_REPEATED;
	if (unlikely(offered) && r->action == ACT_ALLOW && !(r->flags & CODE_DEFER) &&
	    p->v.state != USE_NEW) {
		forget_track(p);
		if (p->offer == OFFER_REPEATED)
			return REASON_COOKIE_REPEATED;
		record_answered(p);
		p->v.answer = ANSWER_COOKIE;
		return REASON_COOKIE;
	}
	__u64 source = source_hash(cf, p->src_hi, p->src_lo);
	__u32 had = enter_source(cf, source),
	      many = had >= cf->source_from && p->offer != OFFER_REDEEMED;
	int why = 0;
	if (unlikely(many)) {
		p->source = source;
		__u32 found = source_victim(had);
		if (found == SOURCE_REFUSED)
			why = REASON_HALF_OPEN_SOURCE;
		else if (found)
			evict_at(found - 1, GONE_SOURCE);
	}
	if (!why)
		why = reserve_state(c, cf);
	if (!why && !find_place(cf, p))
		why = REASON_STATES_FULL;
	__u32 place = p->place, way = place % WAYS;
	struct set *s = why ? NULL : set_at(place / WAYS);
	struct tag_line *tags = why ? NULL : tags_at(place / WAYS);
	if (!s || !tags) {
		forget_track(p);
		leave_source(cf, source);
		return why ? why : REASON_STATES_FULL;
	}
	fill(p, s, way, r->id, r->flags & CODE_LIBERAL ? META_LIBERAL : 0, p->key.proto);
	count_new(c, cf);
	__sync_lock_test_and_set(&tags->tag[way], p->tag | TAG_HALF_OPEN);
	if (unlikely(many))
		record_turn(place);
	new_phase(p, s, place, p->key.proto); // a first packet may also end its flow
	settle(place);
	record_first(p, r->flow, LOOK_HIT, r->id);
	p->first_new = 1;
	return 0;
}
