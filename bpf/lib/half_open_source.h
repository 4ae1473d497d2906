// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// How many half-open states each source has. A keyed hash of the source names two cells in a table
// of counters, and the lower one counts. There are two cells for each half-open state that there
// may be. A source without states counts as one with n if both its cells hold n states of other
// sources. For n = 4, and with all cells as full as they get, this happens once in 2,700.
//
// A source at its limit loses one of its own states. A ring records the states that a source with
// many makes; a hash spreads the slots of all rings over one array. After config.source_turns turns
// a slot comes up again, and then names one of the oldest states.
#pragma once

#include "event.h"

enum { SOURCE_LINE = 16, SOURCE_TURNS = 4096, SOURCE_LOOKS = 8 };

struct source_line {
	__u32 cell[SOURCE_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_line);
} sources SEC(".maps");

// The place of a state. The reader checks that the state is the source's.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct maybe);
} source_ring SEC(".maps");

// How many states sources with many have made, by a hash of the source.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCE_TURNS);
	__type(key, __u32);
	__type(value, __u32);
} source_turns SEC(".maps");

// source_hash hashes an address: all of IPv4, the first 64 bits of IPv6 with the link (source_hi),
// since one host may have all addresses of a /64.
static __always_inline __u64 source_hash(struct config *cf, __u64 hi, __u64 lo)
{
	__u64 a = is_mapped(hi, lo) ? lo : hi;
	__u64 h = (__u64)((__u32)a + (__u32)cf->seed[SEED_SOURCE]) *
		  ((__u32)(a >> 32) + (__u32)cf->seed[SEED_SOURCE + 1]);

	h ^= h >> 32;
	h *= GOLDEN;
	return (h ^ h >> 29) | 1ULL << 63; // never 0
}

// source_cell returns one of the two cells of a hash, which are never the same.
static __always_inline __u32 *source_cell(struct config *cf, __u64 hash, __u32 second)
{
	__u32 n = (__u32)hash & cf->source_mask, apart = hash >> 32 & cf->source_mask;

	if (second)
		n ^= apart + !apart;
	__u32 line = n / SOURCE_LINE;
	struct source_line *l = bpf_map_lookup_elem(&sources, &line);
	return l ? &tested(l)->cell[n % SOURCE_LINE] : NULL;
}

// count_source counts one more half-open state of a source and returns how many it had.
static __always_inline __u32 count_source(struct config *cf, __u64 hash)
{
	__u32 *a = source_cell(cf, hash, 0), *b = source_cell(cf, hash, 1);

	if (!a || !b)
		return 0;
	__u32 n = __sync_fetch_and_add(a, 1), m = __sync_fetch_and_add(b, 1);
	return n < m ? n : m;
}

static __always_inline void uncount_source(struct config *cf, __u64 hash)
{
	__u32 *a = source_cell(cf, hash, 0), *b = source_cell(cf, hash, 1);

	if (!a || !b)
		return;
	__sync_fetch_and_add(a, -1);
	__sync_fetch_and_add(b, -1);
}

// next_turn counts the states that a source with many makes, and returns how many there were.
static __always_inline __u32 next_turn(__u64 hash)
{
	__u32 n = hash >> 20 & (SOURCE_TURNS - 1);
	__u32 *turn = bpf_map_lookup_elem(&source_turns, &n);

	return turn ? __sync_fetch_and_add(turn, 1) : 0;
}

// ring_slot returns where a turn of a source is recorded.
static __always_inline struct maybe *ring_slot(struct config *cf, __u64 hash, __u32 turn)
{
	__u32 turns = cf->source_turns;
	__u64 x = (hash ^ (__u64)(turns ? turn % turns : 0) << 20) * GOLDEN;
	__u32 n = (x ^ x >> 29) >> 16 & cf->ring_mask;

	return bpf_map_lookup_elem(&source_ring, &n);
}
