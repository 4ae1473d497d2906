// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The set-associative table: hashing, finding, claiming and removing entries. A keyed hash names
// two sets of eight entries each, so the work for each packet is bounded, whatever an attacker
// sends.
//
// An entry is claimed by compare-and-swap of its tag, written, and then published by setting the
// tag live. A removed entry rests for about 30 milliseconds before it is used again. So a packet on
// another CPU that found it just before does not write into its successor. Two CPUs may insert one
// key at once; each looks again after publishing, and the entry at the lower place stays, see
// order_of. fast_new looks before it publishes.
#pragma once

#include "hash.h"
#include "pod.h"
#include "sctp.h"
#include "half_open_source.h"

enum { TICK_SHIFT = 20, REST_TICKS = 32 }; // a tick is about a millisecond

static __always_inline __u32 first_set(__u64 hash, __u32 sets)
{
	return (__u64)(__u32)hash * sets >> 32;
}

static __always_inline __u32 second_set(__u64 hash, __u32 sets)
{
	return (hash >> 32) * sets >> 32;
}

// free_tag is the tag of an entry that ends now.
static __always_inline __u64 free_tag(__s64 now)
{
	return (((__u64)now >> TICK_SHIFT) + REST_TICKS) << 2 | TAG_FREE;
}

// vacant: an entry with this tag may be claimed.
static __always_inline int vacant(__u64 tag, __s64 now)
{
	return (tag & TAG_MASK) == TAG_FREE && tag >> 2 <= (__u64)now >> TICK_SHIFT;
}

// tag_of is the tag of a live state with these ports, protocol and flow name (`names`). Its bits of
// the hash choose neither its sets nor its way: entries of one set would share such bits.
static __always_inline __u64 tag_of(__u64 names, __u64 hash)
{
	return names | (hash >> 32 & 0xfff) << 4 | TAG_LIVE;
}

// home_way is where in its first set a new state goes if that entry is vacant.
static __always_inline __u32 home_way(__u64 hash)
{
	return hash & (WAYS - 1);
}

static __always_inline struct set *set_at(__u32 n)
{
	return bpf_map_lookup_elem(&states, &n);
}

static __always_inline struct tag_line *tags_at(__u32 n)
{
	return bpf_map_lookup_elem(&tags, &n);
}

// prefetch reads a word of each cache line of the entry where the state of a hash most likely lies,
// or would. Nothing waits for these loads: the lines arrive together with those of the tags, which
// show whether the guess was right.
static __always_inline void prefetch(__u32 first, __u64 hash)
{
	struct set *s = set_at(first);
	__u32 way = home_way(hash);

	if (s) {
		READ_ONCE(s->addr[way].low_hi);
		READ_ONCE(s->side[way * 2].last);
		READ_ONCE(s->side[way * 2 + 1].last);
	}
}

// names_of returns the ports, protocol and flow name of a key as a tag holds them, tag_names those
// of a tag, and hash_of the hash of a key.
static __always_inline __u64 names_of(const struct key *k)
{
	return (__u64)k->ports << 32 | (__u32)k->proto << 24 | (__u32)k->flow << 16;
}

static __always_inline __u64 tag_names(__u64 tag)
{
	return tag & ~0xffffULL;
}

static __always_inline __u64 hash_of(struct config *cf, const struct key *k, __u64 names)
{
	return hash5(cf->seed, k->low_hi, k->low_lo, k->high_hi, k->high_lo, names);
}

// key_hash sets look->hash and look->tag for look->key with a flow name.
static __always_inline void key_hash(struct lookup *look, struct config *cf, __u32 flow)
{
	struct key *k = &look->key;

	if (look->hashed && k->flow == flow)
		return;
	look->hashed = 1;
	look->spare = NONE;
	k->flow = flow;
	__u64 names = names_of(k);
	look->hash = hash_of(cf, k, names);
	look->tag = tag_of(names, look->hash);
}

static __always_inline int same_ends(struct set *s, __u32 way, const struct key *k)
{
	way &= WAYS - 1;
	return s->addr[way].low_lo == k->low_lo && s->addr[way].high_lo == k->high_lo &&
	       s->addr[way].low_hi == k->low_hi && s->addr[way].high_hi == k->high_hi;
}

static __always_inline void write_ends(struct set *s, __u32 way, const struct key *k)
{
	way &= WAYS - 1;
	s->addr[way].low_hi = k->low_hi;
	s->addr[way].low_lo = k->low_lo;
	s->addr[way].high_hi = k->high_hi;
	s->addr[way].high_lo = k->high_lo;
}

static __always_inline struct side *low_side(struct set *s, __u32 way)
{
	return &s->side[(way & (WAYS - 1)) * 2];
}

static __always_inline struct side *high_side(struct set *s, __u32 way)
{
	return &s->side[(way & (WAYS - 1)) * 2 + 1];
}

static __always_inline __u8 tag_proto(__u64 tag)
{
	return tag >> 24;
}

// lowest returns the number of the lowest bit set in v, which is not 0: the count of the bits below
// it, without a branch.
static __always_inline __u32 lowest(__u64 v)
{
	__u64 x = (v & -v) - 1;

	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return x * 0x0101010101010101ULL >> 56;
}

// same_tag compares tags of live entries, whether half-open or not, moving or not.
static __always_inline int same_tag(__u64 a, __u64 b)
{
	return !((a ^ b) & ~(__u64)(TAG_HALF_OPEN | TAG_ANSWERED | (TAG_LIVE ^ TAG_MOVING)));
}

// fast_claim and slow_claim are the tags of an entry while it is filled. fast_claim: by fast_new or
// a move. slow_claim: by the slow path, which looks for duplicates when the entry is live.
static __always_inline __u64 fast_claim(__u64 tag)
{
	return (tag & TAG_IDENTITY) | TAG_HALF_OPEN;
}

static __always_inline __u64 slow_claim(__u64 tag)
{
	return tag & TAG_IDENTITY;
}

// find_in looks for a key among the entries of set n, whose tags are in t, and sets look->place.
static __always_inline int find_in(struct lookup *look, struct tag_line *t, __u32 n,
				   const struct key *k, __u64 tag)
{
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 have = READ_ONCE(t->tag[i]);
		if (same_tag(have, tag)) {
			// the entry is read after the tag that published it
			__u32 in = n + depends_on(have);
			struct set *s = set_at(in);
			if (s && same_ends(s, i, k)) {
				look->place = in * WAYS + i;
				return 1;
			}
		}
	}
	return 0;
}

// find_home looks for a key at its home way in set n, where most states are.
static __always_inline int find_home(struct lookup *look, struct tag_line *t, __u32 n, __u64 hash,
				     const struct key *k, __u64 tag)
{
	__u32 way = home_way(hash);
	__u64 have = READ_ONCE(t->tag[way]);

	if (!same_tag(have, tag))
		return 0;
	__u32 in = n + depends_on(have);
	struct set *s = set_at(in);
	if (!s || !same_ends(s, way, k))
		return 0;
	look->place = in * WAYS + way;
	return 1;
}

// vacancies returns a bit for each vacant entry of a set, without a branch: which ones are vacant
// is hard to predict.
static __always_inline __u64 vacancies(struct tag_line *t, __u64 tick)
{
	__u64 taken = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 tag = READ_ONCE(t->tag[i]);
		__u64 later = tick - (tag >> 2);
		opaque(later); // otherwise the compiler makes branches: 2^16 paths
		taken |= ((tag & TAG_MASK) + (later >> 63) + 7) >> 3 << i;
	}
	return taken ^ ((1 << WAYS) - 1);
}

// count_bits counts the bits of two bytes, each in a byte of its own.
static __always_inline __u32 count_bits(__u32 v)
{
	v -= v >> 1 & 0x5555;
	v = (v & 0x3333) + (v >> 2 & 0x3333);
	return (v + (v >> 4)) & 0x0f0f;
}

// find_spare sets look->spare to where a state for look->key could lie. That is its home way in its
// first set, which prefetch has loaded, or else in the emptier of its two sets, a and b. This fills
// the table evenly. With `load` it begins to load the cache lines that such a state would write:
// only where the rules are evaluated meanwhile, because the next atomic operation waits for them.
static __always_inline void find_spare(const struct packet *p, struct lookup *look, __u32 sets,
				       struct tag_line *a, struct tag_line *b, int load)
{
	__u32 an = first_set(look->hash, sets), bn = second_set(look->hash, sets);
	__u32 usual = home_way(look->hash);

	if (vacant(READ_ONCE(a->tag[usual]), p->now)) {
		look->spare = some(an * WAYS + usual);
		return;
	}
	__u64 tick = (__u64)p->now >> TICK_SHIFT;
	__u32 in_a = vacancies(a, tick), in_b = vacancies(b, tick),
	      both = count_bits(in_a | in_b << WAYS);
	int use_a = (both & 0xff) >= both >> 8;
	__u32 in = use_a ? in_a : in_b, n = use_a ? an : bn;

	if (!in)
		return;
	__u32 way = count_bits((in & -in) - 1) & (WAYS - 1);
	look->spare = some(n * WAYS + way);
	struct set *s = load ? set_at(n) : NULL;
	if (s) {
		READ_ONCE(s->addr[way].low_hi);
		READ_ONCE(low_side(s, way)->last);
		READ_ONCE(high_side(s, way)->last);
	}
}

// find_spare_noinline is find_spare with `load`, and returns 0.
__noinline int find_spare_noinline(struct cpu *c, __u32 sets)
{
	if (!c)
		return 0;
	struct tag_line *a = tags_at(first_set(c->look.hash, sets)),
			*b = tags_at(second_set(c->look.hash, sets));
	if (a && b)
		find_spare(&c->packet, &c->look, sets, a, b, 1);
	return 0;
}

// find looks for look->key with look->hash and look->tag in its two sets, and sets look->place.
static __always_inline int find(struct cpu *c, struct lookup *look, struct config *cf)
{
	__u32 an = first_set(look->hash, cf->sets), bn = second_set(look->hash, cf->sets);
	struct tag_line *a = tags_at(an), *b = tags_at(bn);

	if (!a || !b)
		return 0;
	prefetch(an, look->hash);
	const struct key *k = &look->key;
	__u64 tag = look->tag;
	if (find_in(look, a, an, k, tag) || find_in(look, b, bn, k, tag))
		return 1;
	find_spare_noinline(c, cf->sets);
	return 0;
}
