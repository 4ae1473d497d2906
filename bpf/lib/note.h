// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Notes of the sweep, one for each set of the state table: until when nothing there has to be
// looked at, so that a pass over states that stay reads two words for a set and not a line for
// each. A note is good for the tags with which it was made: whoever comes, goes or ceases to be
// half-open changes one. What shortens a life and changes no tag, an end of TCP, takes the note
// away.
#pragma once

#include "table.h"

// A unit of its time is about a second. Nothing is left alone for longer than a day.
enum { NOTE_SHIFT = 30, NOTE_MAKING = 1, NOTE_MOST = 80000 };

__always_inline __u64 *note_at(__u32 n)
{
	return bpf_map_lookup_elem(&notes, &n);
}

// forget_note makes the sweep look at the set of a place again. It comes after the change.
__always_inline void forget_note(__u32 place)
{
	__u64 *note = note_at(place / WAYS);

	if (note)
		// behind the change, or the sweep would note the state as it was
		store_ordered(note, 0);
}

// note_of is a note for a line of tags: the time in its upper half, and what the tags, and all that
// the agent may have changed, come to in the lower.
__always_inline __u64 note_of(struct tag_line *t, __u64 epoch, __s64 until)
{
	__u64 sum = epoch;

#pragma unroll
	for (int i = 0; i < WAYS; i++)
		sum = (sum + once(t->tag[i])) * 0x9e3779b97f4a7c15ULL;
	return (__u64)(until >> NOTE_SHIFT) << 32 | sum >> 32;
}

// noted: a note is as good as a fresh one for the same tags, and later.
__always_inline int noted(__u64 note, __u64 fresh)
{
	return (__u32)note == (__u32)fresh && note >> 32 > fresh >> 32;
}

// earliest returns when at the earliest the sweep has to do something about a live state, if no tag
// changes and no connection ends until then. Translations and SCTP change in other ways: there is
// no telling.
__always_inline __s64 earliest(struct config *cf, struct side *low, struct side *high, __u8 proto,
			       __s64 before)
{
	__s64 first = lifetime(cf, PHASE_OPENING, proto),
	      later = lifetime(cf, PHASE_ESTABLISHED, proto), life = first < later ? first : later;

	if (low->rule == NAT_RULE || proto == PROTO_SCTP)
		return 0;
	if (proto == PROTO_TCP)
		life = lifetime(cf, phase_of(low, high, proto), proto) - before;
	__s64 last = once(low->last), other = once(high->last);
	return (last > other ? last : other) + life;
}
