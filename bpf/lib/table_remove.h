// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Removing entries of the table, and what they count as: half-open, in a track, as a translation.
#pragma once

#include "event.h"
#include "table.h"

// count_states adds n to the number of states: to this CPU's share first, so that CPUs rarely touch
// the common gauge.
static __always_inline void count_states(struct cpu *c, struct config *cf, __s64 n)
{
	struct gauge *g = gauges_now();
	__s64 pending = c->pending + n, batch = cf->batch;

	if (g && (pending >= batch || pending <= -batch)) {
		__sync_fetch_and_add(&g->states, pending);
		pending = 0;
	}
	c->pending = pending;
}

static __always_inline void count_half_open(__s64 n)
{
	struct gauge *g = gauges_now();

	if (g)
		__sync_fetch_and_add(&g->half_open, n);
}

// source_of_state returns the hash of the source that a half-open state counts for. Translations do
// not count as half-open: the states that they belong to do.
static __always_inline __u64 source_of_state(struct config *cf, struct set *s, __u32 way)
{
	struct side *low = low_side(s, way);

	way &= WAYS - 1;
	int made = (low->flags & META_MADE) != 0;
	return source_hash(cf, source_hi(made ? s->addr[way].low_hi : s->addr[way].high_hi),
			   made ? s->addr[way].low_lo : s->addr[way].high_lo);
}

static __always_inline void count_answered(__s64 n)
{
	struct gauge *g = gauges_now();

	if (g)
		__sync_fetch_and_add(&g->answered, n);
}

// mark_answered sets in the tag of a half-open state that it was answered. Answered states are
// evicted first, and do not count towards the start of SYN cookies.
__noinline int mark_answered(__u32 place)
{
	struct tag_line *t = tags_at(place / WAYS);

	if (!t)
		return 0;
	__u64 tag = READ_ONCE(t->tag[place % WAYS]);
	if ((tag & (TAG_MASK | TAG_HALF_OPEN | TAG_ANSWERED)) != (TAG_LIVE | TAG_HALF_OPEN))
		return 0;
	if (__sync_val_compare_and_swap(&t->tag[place % WAYS], tag, tag | TAG_ANSWERED) == tag)
		count_answered(1);
	return 0;
}

// uncount_half_open counts one half-open state less, of a source and with a tag.
static __always_inline void uncount_half_open(__u64 source, __u64 tag)
{
	count_half_open(-1);
	if (tag & TAG_ANSWERED)
		count_answered(-1);
	if (source) {
		struct config *cf = settings();
		if (cf)
			uncount_source(cf, source);
	}
}

// promote ends the half-open phase of a state. The tag decides whether a state is half-open, so
// promotion, removal and a move exclude each other; META_HALF_OPEN is only a hint.
__noinline int promote(__u32 place)
{
	__u32 way = place % WAYS;
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);

	if (!s || !t || !cf)
		return 0;
	__u64 tag = READ_ONCE(t->tag[way]);
	if ((tag & TAG_MASK) != TAG_LIVE)
		return 0;
	if (tag & TAG_HALF_OPEN) {
		__u64 source = source_of_state(cf, s, way);
		if (__sync_val_compare_and_swap(
			    &t->tag[way], tag, tag & ~(__u64)(TAG_HALF_OPEN | TAG_ANSWERED)) != tag)
			return 0;
		uncount_half_open(source, tag);
	}
	__sync_fetch_and_and(&low_side(s, way)->flags, ~META_HALF_OPEN);
	return 1;
}

// retry_promotion lets the next packet promote a state that has proved itself and could not be
// promoted, because another CPU was changing its tag. With TCP and SCTP each packet tries by
// itself; with other protocols only if the flags of its own side ask for it.
static __always_inline void retry_promotion(struct side *low, struct side *high, __u8 proto)
{
	if (proto == PROTO_TCP || proto == PROTO_SCTP)
		return;
	__sync_fetch_and_and(&low->flags, ~SIDE_PROVED);
	__sync_fetch_and_and(&high->flags, ~SIDE_PROVED);
}

// track_of returns the place of the track that counts a state, by its low side.
static __always_inline struct maybe track_of(const struct side *low)
{
	return maybe_from(READ_ONCE(low->track));
}

static __always_inline struct track *track_at(struct maybe track)
{
	__u32 place = number(track), n = place / WAYS;
	struct track_set *s = bpf_map_lookup_elem(&tracks, &n);
	return s ? &tested(s)->track[place % WAYS] : NULL;
}

enum { TRACK_ADDS = 8 };

// add_track adds to what a track counts if the track is still of an era, and reports whether it is.
// After many lost races it adds first, and takes that back if it was wrong. If the track is given
// to a third tuple in between, its count stays wrong.
static __always_inline int add_track(struct track *t, __u32 era, __u64 n)
{
	if (!t)
		return 0;
	for (int i = 0; i < TRACK_ADDS; i++) {
		__u64 held = READ_ONCE(t->held);
		if (READ_ONCE(t->era) != era || (__u8)(held >> TRACK_ERA) != (__u8)era)
			return 0;
		if (__sync_val_compare_and_swap(&t->held, held, held + n) == held)
			return 1;
	}
	__u64 old = __sync_fetch_and_add(&t->held, n);
	if ((__u8)(old >> TRACK_ERA) == (__u8)era)
		return 1;
	__sync_fetch_and_add(&t->held, -n);
	return 0;
}

// leave_track stops counting a state in its track, once. It reads which one that is after it has
// taken META_TRACKED: count_proved_in_track sets that flag when it has recorded another track.
static __always_inline void leave_track(struct set *s, __u32 way)
{
	struct side *low = low_side(s, way);

	if (!(READ_ONCE(low->flags) & META_TRACKED))
		return;
	__u32 flags = __sync_fetch_and_and(&low->flags, ~(META_TRACKED | META_TRACK_PROVED));
	if (flags & META_TRACKED)
		add_track(track_at(track_of(low)), side_track_era(high_side(s, way)),
			  -(1 + (flags & META_TRACK_PROVED ? TRACK_ONE_PROVED : 0)));
}

// count_nat adds n to the number of translations: of all, and of the pod at a place, if any.
static __always_inline void count_nat(struct maybe of_pod, __s32 n)
{
	__u32 pod = number(of_pod);
	struct gauge *g = gauges_now();

	if (g) {
		__sync_fetch_and_add(&g->nats, n);
		if (n > 0)
			__sync_fetch_and_add(&g->nats_made, n);
	}
	if (!exists(of_pod))
		return;
	struct nat_count *of = bpf_map_lookup_elem(&nat_counts, &pod);
	if (of)
		__sync_fetch_and_add(&of->nats, n);
}

// is_partner: `other` is the other half of the translation whose entry `low` is at a place. `other`
// has this tag, and is at the place that `low` names.
static __always_inline int is_partner(__u64 tag, const struct side *other, const struct side *low,
				      __u32 place)
{
	__u64 differs = ((tag & TAG_MASK) ^ TAG_LIVE) | (other->rule ^ NAT_RULE) |
			(partner_of(other) ^ place) | (other->created ^ low->created);

	return !differs; // one branch
}

// free_entry frees the place of a translation's entry.
static __always_inline void free_entry(struct cpu *c, struct config *cf, struct set *s,
				       struct tag_line *t, __u32 way, __u32 why)
{
	way &= WAYS - 1;
	if (!(low_side(s, way)->flags & META_WIRE))
		count_nat(pod_in(high_side(s, way)), -1);
	__sync_lock_test_and_set(&t->tag[way], free_tag(c->packet.now));
	count_states(c, cf, -1);
	c->removed[why & 7]++;
}

// remove_partner ends the other half of a translation together with the one at a place.
static __always_inline void remove_partner(struct cpu *c, struct config *cf, struct side *low,
					   __u32 place, __u32 why)
{
	__u32 partner = partner_of(low), way = partner & (WAYS - 1);
	struct tag_line *t = tags_at(partner / WAYS);
	__u64 tag = t ? READ_ONCE(t->tag[way]) : 0;
	struct set *o = set_at(partner / WAYS + depends_on(tag));

	if (!o || !t)
		return;
	if (!is_partner(tag, low_side(o, way), low, place))
		return;
	if (__sync_val_compare_and_swap(&t->tag[way], tag, TAG_CLAIMED) == tag)
		free_entry(c, cf, o, t, way, why);
}

// remove_state ends the state at a place if its tag is still the one given, and reports whether it
// did.
__noinline int remove_state(struct cpu *c, __u32 place, __u64 tag, __u32 why)
{
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;

	if (!c || !cf || !s || !t || (tag & TAG_MASK) != TAG_LIVE)
		return 0;
	struct side *low = low_side(s, way);
	__u64 have = READ_ONCE(t->tag[way]);
	if ((have & TAG_MASK) != TAG_LIVE || !same_tag(have, tag))
		return 0;
	// Until the entry is freed no CPU may claim the place. The state may just have been
	// answered or promoted, which changes its tag.
	if (__sync_val_compare_and_swap(&t->tag[way], have, TAG_CLAIMED) != have) {
		have = READ_ONCE(t->tag[way]);
		if ((have & TAG_MASK) != TAG_LIVE || !same_tag(have, tag) ||
		    __sync_val_compare_and_swap(&t->tag[way], have, TAG_CLAIMED) != have)
			return 0;
	}
	if (low->rule == NAT_RULE) { // both halves at once
		remove_partner(c, cf, low, place, why);
		free_entry(c, cf, s, t, way, why);
		return 1;
	}
	event_end(cf, c, s, way, tag);
	if (have & TAG_HALF_OPEN)
		uncount_half_open(source_of_state(cf, s, way), have);
	leave_track(s, way);
	__sync_lock_test_and_set(&t->tag[way], free_tag(c->packet.now));
	count_states(c, cf, -1);
	c->removed[why & 7]++;
	return 1;
}
