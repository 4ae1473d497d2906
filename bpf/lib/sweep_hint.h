// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Sweep hints, one for each set of the state table: the time until which the sweep can skip the
// set. A pass over states that stay reads two words for a set and not a cache line for each state.
// A hint is valid for the tags with which it was made. A state that is added, removed or promoted
// changes a tag, and so does one whose connection begins to end. A set with an ending connection
// has no hint: the later steps of the end change no tag. A tag may appear again, with another state
// of the same flow. This state cannot expire before the one of the hint could, unless its first
// packet ends it, and then the set has no hint either.
#pragma once

#include "table_remove.h"

// The unit of time of a hint is about a second. No set is skipped for longer than a day.
enum { HINT_SHIFT = 30, HINT_MAKING = 1, HINT_MAX = 80000 };

static __always_inline __u64 *hint_at(__u32 n)
{
	return bpf_map_lookup_elem(&sweep_hints, &n);
}

// clear_hint makes the sweep look at the set of a place again. It is called after the change.
static __always_inline void clear_hint(__u32 place)
{
	__u64 *hint = hint_at(place / WAYS);

	if (hint)
		// after the change, or the sweep would make a hint of the state as it was
		store_ordered(hint, 0);
}

// mark_ending makes the sweep look at the set of a place, where a connection ends, until that state
// is gone. It is called after the change. It marks the tag, which is in the cache, or else clears
// the hint, which is not.
static __always_inline void mark_ending(__u32 place)
{
	struct tag_line *t = tags_at(place / WAYS);

	if (!t)
		return;
	__u64 *at = &t->tag[place % WAYS], tag = READ_ONCE(*at);
	if ((tag & (TAG_MASK | TAG_HALF_OPEN)) == TAG_LIVE &&
	    (tag & TAG_ENDING || __sync_val_compare_and_swap(at, tag, tag | TAG_ENDING) == tag))
		return;
	clear_hint(place); // half-open, or changing at this moment
}

// hint_of is the hint for a line of tags. Its upper half is the time. Its lower half is a hash of
// the tags and of config.epoch, which covers what the agent may change.
static __always_inline __u64 hint_of(struct tag_line *t, __u64 epoch, __s64 until)
{
	__u64 sum = epoch;

#pragma unroll
	for (int i = 0; i < WAYS; i++)
		sum = (sum + READ_ONCE(t->tag[i])) * GOLDEN;
	return (__u64)(until >> HINT_SHIFT) << 32 | sum >> 32;
}

// hint_valid: a hint has the tags of a fresh one, and a later time.
static __always_inline int hint_valid(__u64 hint, __u64 fresh)
{
	return (__u32)hint == (__u32)fresh && hint >> 32 > fresh >> 32;
}

// earliest returns the earliest time at which the sweep has to act on a live state, if no tag
// changes and no connection ends until then. Translations, SCTP and connections that end change in
// other ways: for them it returns 0.
static __always_inline __s64 earliest(struct config *cf, struct side *low, struct side *high,
				      __u64 tag, __s64 before)
{
	__u8 proto = tag_proto(tag);
	__s64 first = lifetime(cf, PHASE_OPENING, proto),
	      later = lifetime(cf, PHASE_ESTABLISHED, proto), life = first < later ? first : later;

	if (low->rule == NAT_RULE || proto == PROTO_SCTP ||
	    (tag & (TAG_HALF_OPEN | TAG_ENDING)) == TAG_ENDING)
		return 0;
	if (proto == PROTO_TCP)
		life = lifetime(cf, phase_of(low, high, proto), proto) - before;
	__s64 last = READ_ONCE(low->last), other = READ_ONCE(high->last);
	return (last > other ? last : other) + life;
}
