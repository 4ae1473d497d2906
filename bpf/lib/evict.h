// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which half-open state is evicted for another, docs/design/0003-evaluation.md section 5.
#pragma once

#include "state.h"

#include "cond.h"

// half_open_in returns a bit for each half-open state of a set that has these bits in its tag.
__always_inline __u64 half_open_in(struct tag_line *t, __u64 want)
{
	__u64 m = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 differs = (READ_ONCE(t->tag[i]) & want) ^ want;
		opaque(differs); // or the compiler makes branches of it: 2^16 paths
		m |= (differs - 1) >> 63 << i;
	}
	return m;
}

// made_at returns when the state at a place was made. It also loads a word of the line of
// addresses, which the removal will need.
__always_inline __s64 made_at(__u32 place)
{
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	READ_ONCE(s->addr[place % WAYS].low_hi);
	return low_side(s, place)->created;
}

// victim returns 1 + the place of the half-open state that would be evicted for p->hash, or 0 if
// its two sets, a and b, have none: of two picked at random the older one. Answered ones come
// first, since the client already has its answer. Tags show which states are half-open, so a flood
// costs few cache lines.
__always_inline __u32 victim(struct pkt *p, struct config *cf, struct tag_line *a,
			     struct tag_line *b)
{
	__u32 an = first_set(p->hash, cf->sets), bn = second_set(p->hash, cf->sets),
	      chance = p->hash >> 40;
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
		return aw + 1;
	return in_b ? bw + 1 : 0;
}

// evict_at removes the state at a place if it is still half-open.
__always_inline int evict_at(__u32 place, __u32 why)
{
	struct tag_line *t = tags_at(place / WAYS);
	__u64 tag = t ? READ_ONCE(t->tag[place % WAYS]) : 0;

	return tag & TAG_HALF_OPEN && remove_state(place, tag, why);
}

// evict removes a half-open state from the two sets of p->hash.
__noinline int evict(__u32 sets)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct tag_line *a = tags_at(first_set(c->p.hash, sets)),
			*b = tags_at(second_set(c->p.hash, sets));
	__u32 found = a && b ? victim(&c->p, cf, a, b) : 0;
	return found && evict_at(found - 1, GONE_RECLAIMED);
}

// own_half_open returns 1 + the place of a half-open state of p->source that one of its turns
// names, or 0.
__always_inline __u32 own_half_open(struct pkt *p, struct config *cf, __u32 turn)
{
	__u32 *slot = ring_slot(cf, p->source, turn), found = slot ? READ_ONCE(*slot) : 0,
	      place = found - 1;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);

	if (!found || !s || !t)
		return 0;
	__u64 tag = READ_ONCE(t->tag[place % WAYS]);
	if ((tag & (TAG_MASK | TAG_HALF_OPEN)) != (TAG_LIVE | TAG_HALF_OPEN) ||
	    originator(cf, s, place) != p->source)
		return 0;
	return found;
}

#define SOURCE_REFUSED (~0U)

// source_victim returns 1 + the place of the state to evict for one more of p->source, which has
// `had` half-open states. At the limit it is one of the source's own, one of its oldest. If none is
// found the new state competes as if half-open states were at their limit. 0: none has to be
// evicted. SOURCE_REFUSED: the packet comes in from an address of the host itself, which any sender
// may have forged. Such a source may have half as many as others.
__noinline __u32 source_victim(__u32 had)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct pkt *p = &c->p;
	__u32 turn = next_turn(p->source), most = cf->max_source;
	p->turn = turn;
	if (p->dir == DIR_IN && had >= most / 2 && is_address(0, p->src_hi, p->src_lo))
		return SOURCE_REFUSED;
	if (had < most)
		return 0;
	for (int i = 0; i < SOURCE_LOOKS; i++) {
		__u32 found = own_half_open(p, cf, turn + i);
		if (found)
			return found;
	}
	struct tag_line *a = tags_at(first_set(p->hash, cf->sets)),
			*b = tags_at(second_set(p->hash, cf->sets));
	return a && b ? victim(p, cf, a, b) : 0;
}

// record_turn records where the new state of p->source lies.
__noinline int record_turn(__u32 place)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u32 *slot = c && cf ? ring_slot(cf, c->p.source, c->p.turn) : NULL;

	if (slot)
		WRITE_ONCE(*slot, place + 1);
	return 0;
}
