// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Tracks: how many states a rule with limit has for each masked tuple. The count of a track is
// exact: it is raised before a state is made, and lowered when the state is closed or removed. When
// no track is free, one that counts half-open states only is evicted: its states count again when
// they prove themselves.
#pragma once

#include "table_remove.h"

static __always_inline int same_mask(struct masked *a, struct masked *b)
{
	return !((a->src_hi ^ b->src_hi) | (a->src_lo ^ b->src_lo) | (a->dst_hi ^ b->dst_hi) |
		 (a->dst_lo ^ b->dst_lo) | (a->ports ^ b->ports) | (a->rule ^ b->rule) |
		 (a->proto ^ b->proto));
}

// track_bits returns a bit for each entry of a set with a tag, whatever its two low bits say.
static __always_inline __u64 track_bits(struct track_set *s, __u64 tag)
{
	__u64 m = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 differs = (READ_ONCE(s->tag[i]) ^ tag) & ~(__u64)TAG_MASK;
		differs |= -differs;
		opaque(differs); // or the compiler makes branches of it
		m |= (~differs >> 63) << i;
	}
	return m;
}

// track_find looks for the masked tuple in a set, and returns its way.
static __always_inline struct maybe track_find(struct track_set *s, struct masked *m, __u64 tag)
{
	__u64 in = track_bits(s, tag);
	__u32 way = lowest(in | 1 << WAYS) & (WAYS - 1);

	if (!in || READ_ONCE(s->tag[way]) != tag || !same_mask(&s->track[way].by, m) ||
	    READ_ONCE(s->track[way].held) & TRACK_DEAD)
		return NONE;
	return some(way);
}

// track_spare returns the way of an entry of a set that could hold another tuple: one never used,
// or one whose track.held has no bit of `kept`.
static __always_inline struct maybe track_spare(struct scratch *scratch, struct track_set *s,
						__u64 kept)
{
	WRITE_ONCE(scratch->spare_way.plus1, NONE.plus1);
	for (int i = 0; i < WAYS; i++) {
		__u64 t = READ_ONCE(s->tag[i]);
		if (t == TAG_FREE || ((t & TAG_MASK) == TAG_LIVE &&
				      !(READ_ONCE(s->track[i].held) & (kept | TRACK_DEAD))))
			WRITE_ONCE(scratch->spare_way.plus1, some(i).plus1);
	}
	return maybe_from(READ_ONCE(scratch->spare_way.plus1));
}

// track_claim claims the spare place, if track.held still has no bit of `kept`, and puts the tuple
// there, counting nothing yet. Before it publishes the track it checks whether another CPU does the
// same at this moment: a tuple has one track, or its limit would not be exact. A CPU that sees
// another claim gives its own up.
//
// A CPU may lose its time slice anywhere here. Until it has claimed the tag, others see a track
// that is dead and take another place, which it then sees. After that they see its claim, give
// theirs up, and refuse their packets in the end. No count depends on how long that takes.
static __always_inline int track_claim(struct track_set *a, struct track_set *b,
				       struct track_set *s, __u32 way, struct masked *m, __u64 tag,
				       __u64 kept)
{
	way &= WAYS - 1;
	struct track *t = &s->track[way];

	__u64 held = READ_ONCE(t->held), era = READ_ONCE(t->era) + 1;
	if (held & (kept | TRACK_DEAD) ||
	    __sync_val_compare_and_swap(&t->held, held, era << TRACK_ERA | TRACK_DEAD) != held)
		return 0;
	WRITE_ONCE(t->era, era);
	__sync_lock_test_and_set(&s->tag[way], (tag & ~(__u64)TAG_MASK) | TAG_CLAIMED);
	t->by = *m;
	__u64 in_a = track_bits(a, tag), in_b = a == b ? 0 : track_bits(b, tag),
	      in = in_a | in_b << WAYS;
	int alone = !(in & (in - 1)); // only ours
	__sync_lock_test_and_set(&s->tag[way], alone ? tag : TAG_FREE);
	__sync_fetch_and_add(&t->held, -(__u64)TRACK_DEAD);
	return alone;
}

// track_place finds or makes the track of limit->masked and returns its place, none if no track is
// free, or another CPU makes it at this moment.
static __always_inline struct maybe track_place(void)
{
	struct cpu *c = this_cpu(); // not a parameter: the loop would spill its counter
	struct config *cf = settings();
	if (!c)
		return NONE;
	struct masked *m = &c->limit.masked;
	__u64 hash = hash5(cf->seed, m->src_hi ^ (__u64)m->rule << 32, m->src_lo,
			   m->dst_hi ^ m->proto, m->dst_lo, m->ports);
	__u64 tag = hash << 2 | TAG_LIVE;
	__u32 an = first_set(hash, cf->track_sets), bn = second_set(hash, cf->track_sets);
	struct track_set *a = bpf_map_lookup_elem(&tracks, &an),
			 *b = bpf_map_lookup_elem(&tracks, &bn);
	if (!a || !b)
		return NONE;
	c->limit.tag = tag;
	struct maybe way = track_find(a, m, tag);
	if (exists(way))
		return some(an * WAYS + number(way));
	way = track_find(b, m, tag);
	if (exists(way))
		return some(bn * WAYS + number(way));
	struct track_set *s = a;
	__u64 kept = TRACK_PROVED | TRACK_COUNT;
	struct maybe spare = track_spare(&c->scratch, a, kept);
	__u32 n = an;
	if (!exists(spare)) {
		spare = track_spare(&c->scratch, b, kept);
		s = b;
		n = bn;
	}
	if (!exists(spare)) {
		kept = TRACK_PROVED;
		spare = track_spare(&c->scratch, b, kept);
	}
	if (!exists(spare)) {
		spare = track_spare(&c->scratch, a, kept);
		s = a;
		n = an;
	}
	if (!exists(spare))
		return NONE;
	c->limit.lost = !track_claim(a, b, s, number(spare), m, tag, kept);
	if (c->limit.lost)
		return NONE;
	return some(n * WAYS + number(spare));
}

// enter_track counts one more state. It returns 0 if the limit is reached, or the track has become
// that of another tuple since it was found.
static __always_inline int enter_track(struct limit *limit, __u32 place, __u32 most)
{
	__u32 set = place / WAYS, way = place % WAYS;
	struct track_set *s = bpf_map_lookup_elem(&tracks, &set);

	if (!s)
		return 0;
	struct track *t = &s->track[way];
	__u64 n = READ_ONCE(t->held);
	limit->era = READ_ONCE(t->era);
	if (n & TRACK_DEAD || READ_ONCE(s->tag[way]) != limit->tag ||
	    !same_mask(&t->by, &limit->masked) || (__u8)(n >> TRACK_ERA) != (__u8)limit->era)
		return 0;
	if ((n & TRACK_COUNT) >= most) {
		limit->own_flow = limit->flow && READ_ONCE(t->last) == limit->flow;
		return 0;
	}
	// An addition could be taken back too late. If another CPU gave the track to another tuple
	// in between, its count would stay one too low.
	if (__sync_val_compare_and_swap(&t->held, n, n + 1) != n) {
		limit->lost = 1;
		return 0;
	}
	// Only here: a CPU that then loses the track would hide the flow that has entered it. If
	// this CPU stops in between, another first packet of the flow is refused, as when it stops
	// anywhere before it has made the state: look_up_own does not wait so long. No count
	// depends on it.
	WRITE_ONCE(t->last, limit->flow);
	return 1;
}

// Where two CPUs make or enter one track at once, one or both try again. A refusal is tried again,
// too: another CPU may have been changing the track.
enum { TRACK_TRIES = 4, TRACK_RACES = 64 };

static long try_limit(__u32 index, void *unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 1;
	struct limit *limit = &c->limit;

	limit->own_flow = limit->lost = 0;
	struct maybe place = track_place();
	limit->none = !exists(place);
	if (exists(place) && enter_track(limit, number(place), limit->most)) {
		limit->track = place;
		return 1;
	}
	limit->refusals += !limit->lost;
	return limit->refusals == TRACK_TRIES;
}

// enter_limit counts one more state of limit->masked. It returns the place of its track as a struct
// maybe: none if the track has reached the limit, or no track is free.
__noinline __u32 enter_limit(struct cpu *c, __u32 most)
{
	if (!c)
		return NONE.plus1;
	struct limit *limit = &c->limit;
	limit->most = most;
	limit->refusals = 0;
	limit->track = NONE;
	bpf_loop(TRACK_RACES, try_limit, NULL, 0);
	return limit->track.plus1;
}
