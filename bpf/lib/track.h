// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Tracks: how many states a rule with limit has for each masked tuple. The count of a track is exact: it is raised before a state is made, and
// lowered when the state is closed or removed.
#pragma once

#include "table.h"

inline_always int same_mask(struct masked *a, struct masked *b)
{
	return a->src_hi == b->src_hi && a->src_lo == b->src_lo && a->dst_hi == b->dst_hi && a->dst_lo == b->dst_lo &&
	       a->ports == b->ports && a->rule == b->rule && a->proto == b->proto;
}

// track_scan looks for the masked tuple in a set, and for a place that could hold it: one never used, or one that counts nothing.
// It returns 1 + the way found or 0; *spare, in memory, is 1 + a way that could be used.
inline_always __u32 track_scan(struct track_set *s, struct masked *m, __u64 tag, __u32 *spare)
{
	once(*spare) = 0;
	for (int i = 0; i < WAYS; i++) {
		__u64 t = once(s->tag[i]);
		if (t == tag && same_mask(&s->track[i].by, m) && !(once(s->track[i].count) & TRACK_DEAD))
			return i + 1;
		if ((t == TAG_FREE || ((t & TAG_MASK) == TAG_LIVE && !once(s->track[i].count))))
			once(*spare) = i + 1;
	}
	return 0;
}

// track_claim makes the spare place ours and puts the tuple there, counting nothing yet.
inline_always int track_claim(struct track_set *s, __u32 way, struct masked *m, __u64 tag)
{
	way &= WAYS - 1;
	struct track *t = &s->track[way];

	if (__sync_val_compare_and_swap(&t->count, 0, TRACK_DEAD) != 0)
		return 0;
	once(s->tag[way]) = TAG_CLAIMED;
	t->by = *m;
	__sync_lock_test_and_set(&s->tag[way], tag);
	__sync_fetch_and_add(&t->count, -TRACK_DEAD);
	return 1;
}

// track_place finds or makes the track of p->masked and returns 1 + its place, or 0 if there is no room.
checked_once __u32 track_place(void)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct masked *m = &c->p.masked;
	__u64 hash = hash5(cf->seed, m->src_hi ^ (__u64)m->rule << 32, m->src_lo, m->dst_hi ^ m->proto, m->dst_lo, m->ports);
	__u64 tag = hash << 2 | TAG_LIVE;
	__u32 an = first_set(hash, cf->track_sets), bn = second_set(hash, cf->track_sets);
	struct track_set *a = bpf_map_lookup_elem(&tracks, &an), *b = bpf_map_lookup_elem(&tracks, &bn);
	if (!a || !b)
		return 0;
	__u32 way = track_scan(a, m, tag, &c->p.vacant);
	if (way)
		return an * WAYS + way;
	way = track_scan(b, m, tag, &c->p.vacant_b);
	if (way)
		return bn * WAYS + way;
	__u32 spare = once(c->p.vacant);
	if (spare && track_claim(a, spare - 1, m, tag))
		return an * WAYS + spare;
	spare = once(c->p.vacant_b);
	if (spare && track_claim(b, spare - 1, m, tag))
		return bn * WAYS + spare;
	return 0;
}

// enter_track counts one more state, and returns 0 if the limit is reached.
inline_always int enter_track(__u32 track, __u32 limit)
{
	struct track *t = track_at(track - 1);

	if (!t)
		return 0;
	__u32 n = __sync_fetch_and_add(&t->count, 1);
	if (!(n & TRACK_DEAD) && n < limit)
		return 1;
	__sync_fetch_and_add(&t->count, -1);
	return 0;
}
