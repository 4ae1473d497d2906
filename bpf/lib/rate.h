// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The buckets of rules with limit-rate, and of pipes, docs/design/0010-rates.md. A bucket is stored
// as one time: when it is full again (GCRA, ITU-T I.371, flow.Bucket). A full one equals a new one,
// so its place may be given to another tuple. A packet for which there is no place counts in the
// bucket of the rule.
#pragma once

#include "state_create.h"

enum { RATE_SETS = 1 << 13 };

// An entry is found by two hashes of its rule and tuple. Their keys are shifted by one word pair
// (UMAC's Toeplitz construction), so that two tuples share a bucket once in 2^63.
struct rate_set {
	__u64 tag[WAYS]; // odd, or 0
	__u64 key[WAYS];
	__s64 full[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RATE_SETS);
	__type(key, __u32);
	__type(value, struct rate_set);
} rates SEC(".maps");

// By rule index: the bucket of all its packets, or of those without a place. The loader fills it
// when a rule gets the index.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __s64);
} rule_rates SEC(".maps");

enum { RATE_TRIES = 4 };

// take_token takes a token from the bucket that is full at *full, and reports whether there was
// one. After RATE_TRIES lost races it reports none.
static __always_inline int take_token(__s64 *full, __s64 every, __s64 slack, __s64 now)
{
	for (int i = 0; i < RATE_TRIES; i++) {
		__s64 was = READ_ONCE(*full), from = was > now ? was : now;
		if (from - now > slack)
			return 0;
		if (__sync_val_compare_and_swap(full, was, from + every) == was)
			return 1;
	}
	return 0;
}

// rate_ways returns a bit for each entry of a set with a tag and a key.
static __always_inline __u64 rate_ways(struct rate_set *s, __u64 tag, __u64 key)
{
	__u64 m = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 differs = (READ_ONCE(s->tag[i]) ^ tag) | (READ_ONCE(s->key[i]) ^ key);
		differs = ~(differs | -differs) >> 63;
		opaque(differs); // otherwise the compiler makes branches
		m |= differs << i;
	}
	return m;
}

// full_ways returns a bit for each entry of a set whose bucket is full.
static __always_inline __u64 full_ways(struct rate_set *s, __s64 now)
{
	__u64 m = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 is = (__u64)(READ_ONCE(s->full[i]) - now - 1) >> 63; // its sign
		opaque(is);
		m |= is << i;
	}
	return m;
}

// rate_hash hashes the parts of the packet's tuple that a rule counts by. One host may have all
// addresses of a /64, so an IPv6 source is counted by that, and a link-local one by its link, too.
static __always_inline __u64 rate_hash(const __u64 *seed, const struct packet *p, __u32 id,
				       __u8 mask)
{
	__u32 ports = has_ports(p) ? p->ports : 0, link = p->dir == DIR_IN ? p->recv : p->xmit;
	__u64 src_lo = p->version == 4 ? p->src_lo : is_local6(p->src_hi) ? link : 0;

	ports &= (mask & LIMIT_SRC_PORT ? 0xffff0000 : 0) | (mask & LIMIT_DST_PORT ? 0xffff : 0);
	return hash5(seed, mask & LIMIT_SRC_ADDR ? p->src_hi : 0,
		     mask & LIMIT_SRC_ADDR ? src_lo : 0, mask & LIMIT_DST_ADDR ? p->dst_hi : 0,
		     mask & LIMIT_DST_ADDR ? p->dst_lo : 0, (__u64)id << 32 | ports);
}

// take_bucket takes `cost` from the bucket that a tag and a key find. If the tag is 0 it takes it
// from the one with an index, which all packets of a rule or pipe share. A bucket that is full
// again within `slack` has enough. It returns 0, REASON_RATE, or REASON_RATES_FULL if there was no
// place.
__noinline int take_bucket(__u64 tag, __u64 key, __u32 index, __s64 cost, __s64 slack)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__s64 *shared = bpf_map_lookup_elem(&rule_rates, &index);
	if (!c || !cf || !shared)
		return REASON_RATE;
	__s64 now = c->packet.now;
	if (!tag)
		return take_token(shared, cost, slack, now) ? 0 : REASON_RATE;
	__u32 an = first_set(tag, cf->rate_sets), bn = second_set(tag, cf->rate_sets);
	struct rate_set *a = bpf_map_lookup_elem(&rates, &an);
	if (!a)
		return REASON_RATE;
	struct rate_set *b = bpf_map_lookup_elem(&rates, &bn);
	if (!b)
		return REASON_RATE;
	for (int i = 0; i < RATE_TRIES; i++) {
		__u32 found =
			rate_ways(a, tag, key) | (an == bn ? 0 : rate_ways(b, tag, key) << WAYS);
		__u64 in = found ? found : full_ways(a, now) | full_ways(b, now) << WAYS;
		if (!in) {
			c->rates_full++;
			return take_token(shared, cost, slack, now) ? 0 : REASON_RATES_FULL;
		}
		__u32 way = lowest(in | 1 << (2 * WAYS)) & (2 * WAYS - 1);
		struct rate_set *s = way < WAYS ? a : b;
		way &= WAYS - 1;
		if (found)
			return take_token(&s->full[way], cost, slack, now) ? 0 : REASON_RATE;
		__s64 was = READ_ONCE(s->full[way]);
		if (was > now || __sync_val_compare_and_swap(&s->full[way], was, now + cost) != was)
			continue;
		// The place is ours: no other CPU takes one that is not full.
		__sync_lock_test_and_set(&s->tag[way], 0);
		WRITE_ONCE(s->key[way], key);
		__sync_lock_test_and_set(&s->tag[way], tag);
		// If two CPUs do this for one tuple, the later one sees both places. From then on
		// all CPUs find the first of them. If both see both, each takes a token of the
		// first, and one token is lost.
		found = rate_ways(a, tag, key) | (an == bn ? 0 : rate_ways(b, tag, key) << WAYS);
		if (!(found & (found - 1)))
			return 0;
	}
	return REASON_RATE;
}

// take_rate takes a token of the rule in a slot for the packet. It returns 0, or the reason if
// there is none.
__noinline int take_rate(struct cpu *c, __u32 slot)
{
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_RATE;
	const struct packet *p = &c->packet;
	struct code *r = code_of(&c->walk, slot);
	if (!r)
		return REASON_RATE;
	if (c->cookie.offer == OFFER_REDEEMED &&
	    c->cookie.redeemed_before == REDEEMED_NEVER) // its SYN has taken one
		return 0;
	__u64 tag = 0, key = 0;
	if (r->rate_mask) {
		tag = rate_hash(cf->seed + SEED_TABLE, p, r->id, r->rate_mask) | 1;
		key = rate_hash(cf->seed + SEED_TABLE + 2, p, r->id, r->rate_mask);
	}
	return take_bucket(tag, key, r->id & 0xffff, r->every, r->slack);
}

// pipe_hash hashes the parts of the packet's tuple that a pipe does not mask.
static __always_inline __u64 pipe_hash(const __u64 *seed, const struct packet *p,
				       const struct pipe *x)
{
	int four = p->version == 4;
	__u32 ports = has_ports(p) ? p->ports & x->ports : 0;

	return hash5(seed, four ? p->src_lo & x->src : p->src_hi & x->src6_hi,
		     four ? p->dst_lo & x->dst : p->dst_lo & x->dst6_lo,
		     four ? 0 : p->dst_hi & x->dst6_hi, p->version << 8 | (p->proto & x->proto),
		     (__u64)x->id << 32 | ports);
}

// in_segments is how many bytes a GSO packet has when it is cut into segments, with `link` bytes in
// front of each. Whatever length its IP header says, the kernel cuts all of it. Another packet has
// `len` bytes.
static __always_inline __u64 in_segments(const struct packet *p, __u32 len, __u32 link)
{
	__u32 head = p->payload, data = p->buffer - head, segment = p->segment;

	if (!segment || p->buffer <= head || data <= segment)
		return len;
	return data + (__u64)((data + segment - 1) / segment) * (link + head - p->jumbo);
}

// pipe_cost returns the time that bytes take of the bucket of a pipe.
static __always_inline __s64 pipe_cost(const struct pipe *x, __u64 bytes)
{
	const __u64 round_up = (1 << PIPE_SHIFT) - 1;

	if (bytes >> 24 && bytes > (~0ULL - round_up) / x->per_byte) // less is never too much
		return PIPE_MAX_COST;
	return (bytes * x->per_byte + round_up) >> PIPE_SHIFT;
}

// take_pipe takes the bytes of the packet from the pipe of the rule in a slot. It returns 0, or the
// reason if the pipe has too few.
__noinline int take_pipe(struct cpu *c, __u32 slot)
{
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_PIPE;
	const struct packet *p = &c->packet;
	struct header *h = header_of(&c->walk);
	struct code *r = code_of(&c->walk, slot);
	if (!h || !r)
		return REASON_PIPE;
	struct row *row = row_of(&c->walk, h->pipes + r->arg / ROW_PIPES);
	if (!row)
		return REASON_PIPE;
	struct pipe *x = &((struct pipe *)row)[r->arg % ROW_PIPES];
	__s64 cost = pipe_cost(x, in_segments(p, p->len, 0));
	__u64 tag = 0, key = 0;
	if (x->masked) {
		tag = pipe_hash(cf->seed + SEED_TABLE, p, x) | 1;
		key = pipe_hash(cf->seed + SEED_TABLE + 2, p, x);
	}
	int why =
		take_bucket(tag, key, x->id & 0xffff, cost, cost < x->depth ? x->depth - cost : 0);
	return why == REASON_RATE ? REASON_PIPE : why;
}
