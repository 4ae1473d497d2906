// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The verdict cache holds, on each CPU, the first rule that matches packets with the same traits.
// An entry is valid until something changes that rules ask about (config.epoch). It is made only
// where the rules have asked about nothing outside struct traits: no state, no probability, no
// field that differs from packet to packet. The rule's action still runs for each packet.
#pragma once

#include "cond.h"

// What the rule does besides counting the packet, in cached_verdict.slot beside the slot. It drops
// it, lets it pass, or also keeps a state under the flow name that the first rule looks up. 0: it
// does more.
enum {
	CACHED_SLOT = MAX_RULES - 1,
	CACHED_KEEP = 1 << 14,
	CACHED_PASS = 2 << 14,
	CACHED_DROP = 3 << 14
};

// How packets look to the rules. A source address or port that no rule has asked about is 0.
struct traits {
	__u64 generation; // generation_of; 0 for nothing
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u32 ports, recv, xmit;
	__u8 proto, tcp_flags, icmp_type, kind; // kind: version << 4 | direction
};

struct cached_verdict {
	struct traits traits;
	__u32 id; // of the first rule that matches
	__u16 number;
	__u16 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CACHE_ENTRIES);
	__type(key, __u32);
	__type(value, struct cached_verdict);
} verdict_cache SEC(".maps");

// verdict_slot returns the entry for packets with these traits.
static __always_inline struct cached_verdict *verdict_slot(struct traits *k)
{
	__u64 rest = (__u64)k->proto << 24 | k->tcp_flags << 16 | k->icmp_type << 8 | k->kind;
	__u32 index =
		cache_index(k->src_hi, k->src_lo, k->dst_hi, k->dst_lo,
			    ((__u64)k->ports << 32 | k->recv) * 11 ^ (rest << 32 | k->xmit) * 13);

	return bpf_map_lookup_elem(&verdict_cache, &index);
}

static __always_inline int same_traits(struct traits *a, struct traits *b)
{
	return a->generation == b->generation && a->dst_lo == b->dst_lo && a->src_lo == b->src_lo &&
	       a->ports == b->ports && a->recv == b->recv && a->dst_hi == b->dst_hi &&
	       a->src_hi == b->src_hi && a->xmit == b->xmit && a->proto == b->proto &&
	       a->tcp_flags == b->tcp_flags && a->icmp_type == b->icmp_type && a->kind == b->kind;
}

// mask_traits clears in k what rules that ask only about `reads` do not see.
static __always_inline void mask_traits(struct traits *k, __u32 reads)
{
	if (!(reads & READ_SRC))
		k->src_hi = k->src_lo = 0;
	if (!(reads & READ_SPORT))
		k->ports &= 0xffff;
}

// verdict_find returns the entry of packets with traits k: first by what the vectors alone ask
// about, else by what any condition asks about. It changes k.
static __always_inline struct cached_verdict *verdict_find(struct traits *k, __u32 reads)
{
	__u32 narrow = vectors_read(reads), wide = rules_read(reads);
	struct traits n = *k;
	mask_traits(&n, narrow);
	struct cached_verdict *m = verdict_slot(&n);
	if (m && same_traits(&m->traits, &n))
		return m;
	if (narrow == wide)
		return NULL;
	mask_traits(k, wide);
	m = verdict_slot(k);
	return m && same_traits(&m->traits, k) ? m : NULL;
}

static __always_inline void traits_of(struct traits *k, const struct packet *p,
				      const struct walk *walk, __u64 epoch)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->generation = generation_of(epoch, walk->current);
	k->src_hi = p->src_hi;
	k->src_lo = p->src_lo;
	k->dst_hi = p->dst_hi;
	k->dst_lo = p->dst_lo;
	k->ports = p->ports;
	k->recv = p->recv;
	k->xmit = p->xmit;
	k->proto = p->proto;
	k->tcp_flags = p->proto == PROTO_TCP ? p->tcp_flags : 0;
	k->icmp_type = is_icmp(p) ? p->icmp_type : 0;
	k->kind = p->version << 4 | p->dir;
}

// verdict_lookup returns the slot of the first rule that matches the packet, as a struct maybe:
// none if it is not cached. Then the walk finds it, and walk->cacheable marks that it may be
// cached. No rule has been visited yet.
__noinline int verdict_lookup(struct cpu *c, __u32 reads)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	if (walk->tags || p->frag & (FRAG_FIRST | FRAG_LATER | FRAG_MF))
		return 0;
	struct traits k;
	traits_of(&k, p, walk, walk->epoch);
	struct cached_verdict *m = verdict_find(&k, reads);
	if (m)
		return some(m->slot & CACHED_SLOT).plus1;
	walk->cacheable = 1;
	walk->reads = vectors_read(reads);
	return NONE.plus1;
}

// cached_kind returns the bits of cached_verdict.slot that describe the rule.
static __always_inline __u16 cached_kind(struct header *h, struct code *r)
{
	if (r->tag || r->flags & (CODE_LOG | CODE_DEFER | CODE_LIBERAL | CODE_RATE | CODE_PIPE))
		return 0;
	if (r->action == ACT_DENY)
		return r->state ? 0 : CACHED_DROP;
	if (r->action != ACT_ALLOW)
		return 0;
	if (!r->state)
		return CACHED_PASS;
	return r->state == STATE_KEEP && holds(fast_flow(h), r->flow) ? CACHED_KEEP : 0;
}

// verdict_store caches that the rule in a slot is the first that matches packets with the traits of
// this one.
__noinline int verdict_store(struct cpu *c, __u32 slot)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	struct header *h = header_of(walk);
	struct code *r = code_of(walk, slot);
	if (!h || !r)
		return 0;
	walk->cacheable = 0;
	struct traits k;
	traits_of(&k, p, walk, walk->epoch);
	__u32 narrow = vectors_read(h->reads);
	mask_traits(&k, walk->reads == narrow ? narrow : rules_read(h->reads));
	struct cached_verdict *m = verdict_slot(&k);
	if (!m)
		return 0;
	m->traits = k;
	m->id = r->id;
	m->number = r->number;
	m->slot = (slot & CACHED_SLOT) | cached_kind(h, r);
	return 0;
}
