// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Hashes: a keyed one for what an attacker must not make collide, and one for caches.
#pragma once

#include "maps.h"

// 2^64 divided by the golden ratio: a multiplication by it spreads low bits over the high ones
// (Knuth, multiplicative hashing).
#define GOLDEN 0x9e3779b97f4a7c15ULL

// hash5 hashes five words with the keys at s: NH (Black et al., UMAC, 1999), and a finalizer to
// spread the bits. Without the keys an attacker cannot construct collisions.
static __always_inline __u64 hash5(const __u64 *s, __u64 a, __u64 b, __u64 c, __u64 d, __u64 e)
{
	__u64 h = (__u64)((__u32)a + (__u32)s[0]) * ((__u32)(a >> 32) + (__u32)s[1]);
	h += (__u64)((__u32)b + (__u32)s[2]) * ((__u32)(b >> 32) + (__u32)s[3]);
	h += (__u64)((__u32)c + (__u32)s[4]) * ((__u32)(c >> 32) + (__u32)s[5]);
	h += (__u64)((__u32)d + (__u32)s[6]) * ((__u32)(d >> 32) + (__u32)s[7]);
	h += (__u64)((__u32)e + (__u32)s[8]) * ((__u32)(e >> 32) + (__u32)s[9]);
	h ^= h >> 32;
	h *= GOLDEN;
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ULL;
	h ^= h >> 32;
	return h;
}

enum { CACHE_ENTRIES = 1 << 10 };

// cache_index returns where packets with these addresses and `rest` belong in a cache. The hash has
// no key: a collision is found by comparison, and costs only the cached entry.
static __always_inline __u32 cache_index(__u64 src_hi, __u64 src_lo, __u64 dst_hi, __u64 dst_lo,
					 __u64 rest)
{
	__u64 mixed = src_hi ^ src_lo * 3 ^ dst_hi * 5 ^ dst_lo * 7 ^ rest;

	return mixed * GOLDEN >> 54 & (CACHE_ENTRIES - 1);
}
