// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which half-open state is evicted for another, docs/design/0003-evaluation.md section 5.
#pragma once

#include "state.h"

#include "cond.h"

// half_open_in returns a bit for each half-open state of a set that has these bits in its tag.
static __always_inline __u64 half_open_in(struct tag_line *t, __u64 want)
{
	__u64 m = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 differs = (READ_ONCE(t->tag[i]) & want) ^ want;
		opaque(differs); // otherwise the compiler makes branches: 2^16 paths
		m |= (differs - 1) >> 63 << i;
	}
	return m;
}

// made_at returns when the state at a place was made. It also loads a word of the line of
// addresses, which the removal will need.
static __always_inline __s64 made_at(__u32 place)
{
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	READ_ONCE(s->addr[place % WAYS].low_hi);
	return low_side(s, place)->created;
}

// victim returns the place of the half-open state that would be evicted for look->hash, none if its
// two sets, a and b, have none. It is the older of two picked at random, one in each set. Answered
// ones come first, since the client already has its answer. Tags show which states are half-open,
// so a flood costs few cache lines.
static __always_inline struct maybe victim(const struct lookup *look, struct config *cf,
					   struct tag_line *a, struct tag_line *b)
{
	__u32 an = first_set(look->hash, cf->sets), bn = second_set(look->hash, cf->sets),
	      chance = look->hash >> 40;
	__u64 in_a = half_open_in(a, TAG_LIVE | TAG_HALF_OPEN | TAG_ANSWERED),
	      in_b = half_open_in(b, TAG_LIVE | TAG_HALF_OPEN | TAG_ANSWERED);
	if (!(in_a | in_b)) {
		in_a = half_open_in(a, TAG_LIVE | TAG_HALF_OPEN);
		in_b = half_open_in(b, TAG_LIVE | TAG_HALF_OPEN);
	}
	// The first at or after a random way, wrapping around.
	chance &= WAYS - 1;
	in_a = (in_a | in_a << WAYS) >> chance & 0xff;
	in_b = (in_b | in_b << WAYS) >> chance & 0xff;
	__u32 aw = (lowest(in_a | 1 << WAYS) + chance) & (WAYS - 1),
	      bw = (lowest(in_b | 1 << WAYS) + chance) & (WAYS - 1);
	aw += an * WAYS;
	bw += bn * WAYS;
	if (in_a && (!in_b || made_at(aw) <= made_at(bw)))
		return some(aw);
	return in_b ? some(bw) : NONE;
}

// evict_at removes the state at a place if it is still half-open.
static __always_inline int evict_at(struct cpu *c, __u32 place, __u32 why)
{
	struct tag_line *t = tags_at(place / WAYS);
	__u64 tag = t ? READ_ONCE(t->tag[place % WAYS]) : 0;

	return tag & TAG_HALF_OPEN && remove_state(c, place, tag, why);
}

// evict removes a half-open state from the two sets of look->hash.
__noinline int evict(struct cpu *c, __u32 sets)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct tag_line *a = tags_at(first_set(c->look.hash, sets)),
			*b = tags_at(second_set(c->look.hash, sets));
	struct maybe found = a && b ? victim(&c->look, cf, a, b) : NONE;
	return exists(found) && evict_at(c, number(found), GONE_RECLAIMED);
}

// own_half_open returns the place of the state that the ring names for a turn of limit->source,
// none if that is not a half-open state of this source.
static __always_inline struct maybe own_half_open(const struct limit *limit, struct config *cf,
						  __u32 turn)
{
	struct maybe *slot = ring_slot(cf, limit->source, turn),
		     found = slot ? maybe_from(READ_ONCE(slot->plus1)) : NONE;
	__u32 place = number(found);
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);

	if (!exists(found) || !s || !t)
		return NONE;
	__u64 tag = READ_ONCE(t->tag[place % WAYS]);
	if ((tag & (TAG_MASK | TAG_HALF_OPEN)) != (TAG_LIVE | TAG_HALF_OPEN) ||
	    source_of_state(cf, s, place) != limit->source)
		return NONE;
	return found;
}

#define SOURCE_REFUSED (~0U)

// source_victim returns the place of the state to evict for one more of limit->source, as a struct
// maybe: none if none has to be evicted. The source has `had` half-open states. At the limit it is
// one of the source's own, one of its oldest. If none is found the new state competes as if
// half-open states were at their limit. SOURCE_REFUSED: the packet comes in from an address of the
// host itself, which any sender may have forged. Such a source may have half as many as others.
__noinline __u32 source_victim(struct cpu *c, __u32 had)
{
	struct config *cf = settings();
	if (!c || !cf)
		return NONE.plus1;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct limit *limit = &c->limit;
	__u32 turn = next_turn(limit->source), most = cf->max_source;
	limit->turn = turn;
	if (p->dir == DIR_IN && had >= most / 2 && is_mine(p->version, p->src_hi, p->src_lo))
		return SOURCE_REFUSED;
	if (had < most)
		return NONE.plus1;
	for (int i = 0; i < SOURCE_LOOKS; i++) {
		struct maybe found = own_half_open(limit, cf, turn + i);
		if (exists(found))
			return found.plus1;
	}
	struct tag_line *a = tags_at(first_set(look->hash, cf->sets)),
			*b = tags_at(second_set(look->hash, cf->sets));
	return a && b ? victim(look, cf, a, b).plus1 : NONE.plus1;
}

// record_turn records where the new state of limit->source lies.
__noinline int record_turn(struct cpu *c, __u32 place)
{
	struct config *cf = settings();
	struct maybe *slot = c && cf ? ring_slot(cf, c->limit.source, c->limit.turn) : NULL;

	if (slot)
		WRITE_ONCE(slot->plus1, some(place).plus1);
	return 0;
}
