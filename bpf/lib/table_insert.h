// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Finding a place for a new entry, docs/design/0003-evaluation.md section 5: a vacant one, one made
// vacant by a move, or a reclaimed one. If two CPUs insert one key at once, one entry is removed.
#pragma once

#include "state_evict.h"
#include "nat_evict.h"

// reclaimable returns the tag of the state at a place if it has expired or its TCP connection is
// closed, 0 if not. It does not remove the state itself: its stack and that of remove_state would
// add up.
__noinline __u64 reclaimable(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;
	if (!c || !cf || !t)
		return 0;
	__u64 tag = READ_ONCE(t->tag[way]);
	struct set *s = set_at(place / WAYS + depends_on(tag));
	if (!s || (tag & TAG_MASK) != TAG_LIVE)
		return 0;
	struct side *low = low_side(s, way), *high = high_side(s, way);
	if (low->rule == NAT_RULE)
		return nat_weigh(c, place, 0) <= NAT_CLOSED ? tag : 0;
	if (!is_over(low, high, tag_proto(tag)) &&
	    !expired(cf, low, high, tag_proto(tag), c->packet.now))
		return 0;
	return tag;
}

// The first packets of a flow meet only while its translation is made. That takes microseconds, or
// longer if the CPU is interrupted; the clock may tick meanwhile.
enum { FIRST_TIME = 10000000 }; // ns

// may_be_first: the state with this low side may be that of the other first packet of a flow to a
// published port. Then another CPU has made it since choose_source looked for one, and has not
// marked it yet. await_first finds out. `mine` are the flags of the sender's side, `other` those of
// the pod's.
static __always_inline int may_be_first(struct config *cf, const struct packet *p,
					const struct lookup *look, const struct side *low,
					__u32 mine, __u32 other)
{
	struct maybe flow = current_flow(READ_ONCE(cf->current));

	return p->now - low->created <= FIRST_TIME && mine & META_MADE && !(other & SIDE_SEEN) &&
	       look->key.flow == (exists(flow) ? number(flow) : 0);
}

__noinline int is_other_flow(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	if (!c || !cf || !s)
		return 0;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	const struct nat *nat = &c->nat;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = look->from ? high : low, *o = look->from ? low : high;
	__u32 mine = d->flags;
	if (p->dir != DIR_IN || p->second_evaluation || look->is_error)
		return 0;
	if (nat->make ? mine & META_PUBLISHED : nat->translated || !from_port_client(mine))
		return 0;
	// The state is over, or the SYN begins another connection.
	if (reclaimable(c, place) || (nat->make && may_be_first(cf, p, look, low, mine, o->flags)))
		return 0;
	return look->key.proto != PROTO_TCP || !bare_syn(p->tcp_flags) || o->flags & SIDE_SEEN ||
	       !(mine & SIDE_SYN) || p->seq == d->start;
}

static __always_inline int reclaim_at(struct cpu *c, __u32 place)
{
	__u64 tag = reclaimable(c, place);

	return tag && remove_state(c, place, tag, GONE_RECLAIMED);
}

// reclaim_dead frees a reclaimable entry in one of the two sets of look->hash.
__noinline int reclaim_dead(struct cpu *c, __u32 sets)
{
	if (!c)
		return 0;
	__u32 a = first_set(c->look.hash, sets) * WAYS, b = second_set(c->look.hash, sets) * WAYS;
	for (int i = 0; i < WAYS; i++) {
		if (reclaim_at(c, a + i) || reclaim_at(c, b + i))
			return 1;
	}
	return 0;
}

// reclaim frees an entry in one of the two sets of look->hash: dead ones first, then half-open
// ones, then translations.
static __always_inline int reclaim(struct cpu *c, struct config *cf)
{
	return reclaim_dead(c, cf->sets) || evict(c, cf->sets) || nat_evict_sets(c, cf->sets);
}

// pick_vacant counts the vacant entries of a set in scratch->vacant and puts one of them into
// scratch->way.
static __always_inline void pick_vacant(struct scratch *scratch, struct tag_line *t, __s64 now)
{
	WRITE_ONCE(scratch->vacant, 0);
	for (int i = 0; i < WAYS; i++) {
		if (!vacant(READ_ONCE(t->tag[i]), now))
			continue;
		WRITE_ONCE(scratch->vacant, READ_ONCE(scratch->vacant) + 1);
		WRITE_ONCE(scratch->way, i);
	}
}

// claim_picked claims the entry that was picked in set n.
static __always_inline int claim_picked(struct lookup *look, const struct scratch *scratch,
					struct tag_line *t, __u32 n, __s64 now)
{
	__u32 way = READ_ONCE(scratch->way) & (WAYS - 1);
	__u64 old = READ_ONCE(t->tag[way]);

	if (!vacant(old, now))
		return 0;
	if (__sync_val_compare_and_swap(&t->tag[way], old, slow_claim(look->tag)) != old)
		return 0;
	look->place = n * WAYS + way;
	return 1;
}

// claim_spare claims the entry look->spare, with the tag `claim`.
static __always_inline int claim_spare(const struct packet *p, struct lookup *look, __u64 claim)
{
	__u32 place = number(look->spare), way = place % WAYS;
	struct tag_line *t = exists(look->spare) ? tags_at(place / WAYS) : NULL;
	if (!t)
		return 0;
	__u64 old = READ_ONCE(t->tag[way]);
	if (!vacant(old, p->now) || __sync_val_compare_and_swap(&t->tag[way], old, claim) != old)
		return 0;
	look->place = place;
	return 1;
}

// unclaim frees an entry that was claimed and not published.
static __always_inline void unclaim(const struct packet *p, __u32 place)
{
	struct tag_line *t = tags_at(place / WAYS);

	if (t)
		__sync_lock_test_and_set(&t->tag[place & (WAYS - 1)], free_tag(p->now));
}

// claim takes an entry for look->key: in the emptier of its two sets, which fills the table evenly.
// It sets look->place. With no_wait it also takes an entry that was freed just now.
__noinline int claim(struct cpu *c, __u32 no_wait)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct scratch *scratch = &c->scratch;
	__u32 an = first_set(look->hash, cf->sets), bn = second_set(look->hash, cf->sets);
	struct tag_line *a = tags_at(an), *b = tags_at(bn);
	if (!a || !b)
		return 0;
	__s64 now = p->now + (no_wait ? (__s64)REST_TICKS << TICK_SHIFT : 0);
	for (int i = 0; i < 4; i++) {
		pick_vacant(scratch, b, now);
		WRITE_ONCE(scratch->vacant_b, READ_ONCE(scratch->vacant));
		pick_vacant(scratch, a, now);
		if (READ_ONCE(scratch->vacant) >= READ_ONCE(scratch->vacant_b)) {
			if (!READ_ONCE(scratch->vacant))
				return 0;
			if (claim_picked(look, scratch, a, an, now))
				return 1;
		} else {
			pick_vacant(scratch, b, now);
			if (claim_picked(look, scratch, b, bn, now))
				return 1;
		}
	}
	return 0;
}

// other_set returns the second of the two sets in which the entry at a place may lie.
static __always_inline __u32 other_set(struct config *cf, struct set *s, __u64 tag, __u32 n,
				       __u32 way)
{
	__u64 hash = hash5(cf->seed, s->addr[way].low_hi, s->addr[way].low_lo, s->addr[way].high_hi,
			   s->addr[way].high_lo, tag_names(tag));
	__u32 a = first_set(hash, cf->sets), b = second_set(hash, cf->sets);

	return a == n ? b : a;
}

// begin_move claims a vacant entry, if there is one, in the other set of the entry at a place,
// which will move there. It returns the new place as a struct maybe. The tag of the old place
// decides whether the entry was moved, promoted or removed, and META_TRACKED there whether it has
// left its track: each happens once. At every moment look-ups find the entry in one of the two
// places. If a packet has found the old place and writes to it after the copy, the numbers of one
// segment are lost. The next segment that counts raises them.
__noinline int begin_move(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	__u32 n = place / WAYS, way = place % WAYS;
	struct set *s = set_at(n);
	struct tag_line *from = tags_at(n);
	if (!c || !cf || !s || !from)
		return 0;
	const struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;
	__u64 tag = READ_ONCE(from->tag[way]);
	// the halves of a translation refer to each other by place
	if ((tag & TAG_MASK) != TAG_LIVE || low_side(s, way)->rule == NAT_RULE)
		return NONE.plus1;
	__u32 to = other_set(cf, s, tag, n, way);
	if (to == n)
		return 0;
	struct set *o = set_at(to);
	struct tag_line *t = tags_at(to);
	if (!o || !t)
		return 0;
	pick_vacant(scratch, t, p->now);
	__u32 at = READ_ONCE(scratch->way) & (WAYS - 1);
	__u64 old = READ_ONCE(t->tag[at]);
	if (!READ_ONCE(scratch->vacant) || !vacant(old, p->now))
		return 0;
	if (__sync_val_compare_and_swap(&t->tag[at], old, fast_claim(tag)) != old)
		return 0;
	// From here on this CPU owns the old place, unless the state has ended meanwhile. Look-ups
	// find the old place until they find the new one.
	if (__sync_val_compare_and_swap(&from->tag[way], tag, tag ^ TAG_LIVE ^ TAG_MOVING) != tag) {
		__sync_lock_test_and_set(&t->tag[at], free_tag(p->now));
		return 0;
	}
	c->moved = some(to * WAYS + at);
	return c->moved.plus1;
}

// end_move completes what begin_move began at a place.
__noinline int end_move(struct cpu *c, __u32 place)
{
	if (!c)
		return 0;
	__u32 moved = number(c->moved), way = place % WAYS, at = moved % WAYS;
	struct set *s = set_at(place / WAYS), *o = set_at(moved / WAYS);
	struct tag_line *from = tags_at(place / WAYS), *t = tags_at(moved / WAYS);
	if (!s || !o || !from || !t)
		return 0;
	__u64 tag = READ_ONCE(from->tag[way]) ^ TAG_LIVE ^ TAG_MOVING;
	__u32 flags = __sync_fetch_and_and(&low_side(s, way)->flags, ~META_TRACKED),
	      tracked = META_TRACKED | META_TRACK_PROVED;
	o->addr[at] = s->addr[way];
	*low_side(o, at) = *low_side(s, way);
	*high_side(o, at) = *high_side(s, way);
	// what count_proved_in_track sets in the old place from then on it takes back
	low_side(o, at)->flags = (low_side(o, at)->flags & ~tracked) | (flags & tracked);
	// Meanwhile no packet could promote the state.
	if (tag & TAG_HALF_OPEN)
		retry_promotion(low_side(o, at), high_side(o, at), tag_proto(tag));
	__sync_lock_test_and_set(&t->tag[at], tag);
	__sync_lock_test_and_set(&from->tag[way], free_tag(c->packet.now));
	return 1;
}

// move takes the entry at a place to its other set, if that has a vacant entry.
static __always_inline int move(struct cpu *c, __u32 place)
{
	return begin_move(c, place) && end_move(c, place);
}

// move_one moves an entry out of the two sets of look->hash, so that they fill further before
// anything is evicted.
__noinline int move_one(struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct lookup *look = &c->look;
	for (int i = 0; i < 2 * WAYS; i++) {
		__u32 n = i < WAYS ? first_set(look->hash, cf->sets) :
				     second_set(look->hash, cf->sets);
		if (move(c, n * WAYS + i % WAYS))
			return 1;
	}
	return 0;
}

// find_place finds a place for look->key: a vacant one, one that becomes vacant by moving, or one
// that is reclaimed.
static __always_inline int find_place(struct cpu *c, struct config *cf, const struct packet *p,
				      struct lookup *look)
{
	if (claim_spare(p, look, slow_claim(look->tag)) || claim(c, 0) || claim(c, 1))
		return 1;
	if (move_one(c) && claim(c, 1))
		return 1;
	return reclaim(c, cf) && claim(c, 1);
}

// order_of returns where the entry at a place stands among those with its key: the first one stays.
// Both halves of a translation stand where its inner one is. By their own places each of two CPUs
// could remove the other's translation.
static __always_inline __u32 order_of(struct set *s, __u32 place)
{
	struct side *low = low_side(s, place);

	return low->rule == NAT_RULE && low->flags & META_WIRE ? partner_of(low) : place;
}

// stays: of two live entries with the same key, ours at a place stays and the one at `other` goes.
// That is the first by order_of. But of translations to different tuples ours goes, since the
// other's packet may have been sent. If both CPUs do so, each makes its translation again. Not in
// remove_duplicate, whose stack it would enlarge.
__noinline int stays(__u32 place, __u32 other)
{
	struct set *s = set_at(place / WAYS), *o = set_at(other / WAYS);
	if (!s || !o)
		return 1;
	struct side *low = low_side(s, place);
	__u32 a = partner_of(low), b = partner_of(low_side(o, other));
	struct tag_line *at = tags_at(a / WAYS), *bt = tags_at(b / WAYS);

	if (low->rule == NAT_RULE &&
	    (!at || !bt ||
	     (READ_ONCE(at->tag[a % WAYS]) ^ READ_ONCE(bt->tag[b % WAYS])) & TAG_IDENTITY))
		return 0;
	return order_of(o, other) > order_of(s, place);
}

// remove_duplicate compares the live entry at `place`, which is ours, with one at another place
// that has the same identity. Of two live ones with the same key one stays. Ours is also removed if
// fast_new is about to fill another one: fast_new may have looked for duplicates before ours was
// there. If it has seen ours, it gives up, and the slow path makes another entry. remove_duplicate
// returns 0 if it removed ours.
__noinline int remove_duplicate(struct cpu *c, __u32 place, __u32 other)
{
	struct tag_line *t = tags_at(other / WAYS);
	if (!c || !t || other == place)
		return 1;
	__u64 tag = READ_ONCE(t->tag[other % WAYS]);
	other += depends_on(tag);
	struct set *s = set_at(other / WAYS);
	if (!s)
		return 1;
	if (tag == fast_claim(c->look.tag)) {
		remove_state(c, place, c->look.tag, GONE_DUPLICATE);
		return 0;
	}
	if (!same_tag(tag, c->look.tag) || !same_ends(s, other % WAYS, &c->look.key))
		return 1;
	if (stays(place, other)) {
		remove_state(c, other, c->look.tag, GONE_DUPLICATE);
		return 1;
	}
	remove_state(c, place, c->look.tag, GONE_DUPLICATE);
	c->look.place = other;
	return 0;
}

// resolve_duplicates checks whether two CPUs inserted look->key at once, and reports whether our
// entry, which is live, stays.
__noinline int resolve_duplicates(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 1;
	__u64 tag = c->look.tag;
	__u32 an = first_set(c->look.hash, cf->sets), bn = second_set(c->look.hash, cf->sets);
	struct tag_line *a = tags_at(an), *b = tags_at(bn);
	if (!a || !b)
		return 1;
	for (int i = 0; i < WAYS; i++) {
		if (unlikely(!((READ_ONCE(a->tag[i]) ^ tag) & TAG_IDENTITY) &&
			     !remove_duplicate(c, place, an * WAYS + i)))
			return 0;
		if (unlikely(!((READ_ONCE(b->tag[i]) ^ tag) & TAG_IDENTITY) &&
			     !remove_duplicate(c, place, bn * WAYS + i)))
			return 0;
	}
	return 1;
}
