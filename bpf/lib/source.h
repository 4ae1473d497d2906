// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// How many half-open states each source has: two cells of one table of counters, by a keyed hash of the source, of which the lower counts.
// A source that shares both its cells with others of many states is taken for one of many: two addresses do so once in 2^27 pairs.
#pragma once

#include "event.h"

enum { SOURCE_CELLS = 1 << 14 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SOURCE_CELLS);
	__type(key, __u32);
	__type(value, __u32);
} sources SEC(".maps");

// source_hash hashes an address: all of IPv4, the first 64 bits of IPv6, of which one host has all that follow.
inline_always __u64 source_hash(struct config *cf, __u64 hi, __u64 lo)
{
	__u64 a = is_mapped(hi, lo) ? lo : hi;
	__u64 h = (__u64)((__u32)a + (__u32)cf->seed[10]) * ((__u32)(a >> 32) + (__u32)cf->seed[11]);

	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	return (h ^ h >> 29) | 1ULL << 63; // never 0
}

// source_cell returns one of the two cells of a hash, which are never the same.
inline_always __u32 *source_cell(__u64 hash, __u32 second)
{
	__u32 n = (__u32)hash % SOURCE_CELLS;

	if (second)
		n ^= 1 + (hash >> 32) % (SOURCE_CELLS - 1);
	return bpf_map_lookup_elem(&sources, &n);
}

// enter_source counts one more half-open state of a source. It returns 0, with nothing counted, if it has `most`, 0 meaning any number.
inline_always int enter_source(__u32 most, struct config *cf, __u64 hi, __u64 lo)
{
	__u64 h = source_hash(cf, hi, lo);
	__u32 *a = source_cell(h, 0), *b = source_cell(h, 1);

	if (!a || !b)
		return 0;
	__u32 n = __sync_fetch_and_add(a, 1), m = __sync_fetch_and_add(b, 1);
	if (likely(!most || n < most || m < most))
		return 1;
	__sync_fetch_and_add(a, -1);
	__sync_fetch_and_add(b, -1);
	return 0;
}

inline_always void leave_hash(__u64 h)
{
	__u32 *a = source_cell(h, 0), *b = source_cell(h, 1);

	if (!a || !b)
		return;
	__sync_fetch_and_add(a, -1);
	__sync_fetch_and_add(b, -1);
}

inline_always void leave_source(struct config *cf, __u64 hi, __u64 lo)
{
	leave_hash(source_hash(cf, hi, lo));
}
