// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path of packets without a state whose rule is in the verdict cache. A packet begins a
// UDP flow or a TCP connection, or a rule without a state drops it or lets it pass.
#pragma once

#include "fast_step.h"

// duplicates counts the entries of the two sets of look->hash that have the identity of look->tag,
// claimed or live: one is ours. It compares only the lower halves of tags, so once in some hundred
// times another flow counts as a duplicate. There is no branch: where ours lies is hard to predict.
static __always_inline __u32 duplicates(const struct lookup *look, struct tag_line *a,
					struct tag_line *b)
{
	__u64 n = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 in_a = ((__u32)READ_ONCE(a->tag[i]) ^ (__u32)look->tag) & (__u32)TAG_IDENTITY,
		      in_b = ((__u32)READ_ONCE(b->tag[i]) ^ (__u32)look->tag) & (__u32)TAG_IDENTITY;
		opaque(in_a); // or the compiler makes branches of it
		opaque(in_b);
		n += ((in_a - 1) >> 63) + ((in_b - 1) >> 63);
	}
	return a == b ? n / 2 : n;
}

// opens: the packet may begin a connection.
static __always_inline int opens(const struct packet *p)
{
	return (p->tcp_flags & (TH_SYN | TH_ACK | TH_FIN | TH_RST)) == TH_SYN;
}

// fast_new evaluates a packet without a state, which fast_established has described in p and look.
// The verdict cache has to hold its rule. If that makes a state, the packet has to be one of UDP or
// a SYN, a state has to be allowed, and gets `flags`. A packet with flags meets other rules at
// egress, if it has no state. fast_new reports whether it evaluated the packet.
//
// Its cost is cold memory, so the order matters. First come all reads, then all atomic operations,
// which wait for the reads. Last come the stores to the entry, from which nothing is read. Where
// the processor keeps stores in order, the last store publishes the entry. A store does not wait
// for its line, only for the address of its page if that is not in the TLB. So fast_new looks for
// duplicates while the entry is only claimed: of two claims, which are atomic, the later one sees
// the earlier. A CPU that sees another claim gives its own up and takes the slow path, which
// settles it.
__noinline int fast_new(struct __sk_buff *skb, struct cpu *c, __u32 l2, __u32 flags)
{
	struct config *cf = settings();
	struct gauge *g = gauges_now();
	if (!c || !cf || !g)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct limit *limit = &c->limit;
	const struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	struct tag_line *a = tags_at(first_set(look->hash, cf->sets)),
			*b = tags_at(second_set(look->hash, cf->sets));
	if (!a || !b)
		return 0;
	find_spare(p, look, cf->sets, a, b, 0);
	struct traits k;
	traits_of(&k, p, walk, READ_ONCE(cf->epoch));
	struct cached_verdict *m = verdict_find(&k, current_reads(READ_ONCE(cf->current)));
	// The slow path may answer a SYN with a cookie, or redeem one.
	if (!m || walk->tags || (p->proto == PROTO_TCP && unlikely(g->cookies)))
		return 0;
	__u32 kind = m->slot & ~CACHED_SLOT;
	if (kind == CACHED_DROP || (kind == CACHED_PASS && !flags))
		return by_cached_rule(c, cf, m);
	if (kind != CACHED_KEEP || !exists(look->spare))
		return 0;
	if (p->proto == PROTO_TCP) {
		if (!opens(p))
			return 0;
		fast_read_scale(skb, c, l2);
	}
	__s64 half_open = g->half_open;
	if (unlikely(half_open - g->answered >= cf->max_half_open / COOKIES_FROM))
		begin_cookies(g, cf);
	__u32 full = half_open >= cf->max_half_open;
	struct maybe old = full ? victim(look, cf, a, b) : NONE;
	if ((full && !exists(old)) || g->states + c->pending - full >= cf->max_states)
		return 0;
	__u64 source = source_hash(cf, p->src_hi, p->src_lo);
	if (unlikely(count_source(cf, source) >= cf->source_from)) {
		uncount_source(cf, source);
		return 0;
	}
	__u32 claimed = (!full || evict_at(c, number(old), GONE_RECLAIMED)) &&
			claim_spare(p, look, fast_claim(look->tag)),
	      place = look->place;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	if (unlikely(!claimed || !s || !t || duplicates(look, a, b) != 1)) {
		if (claimed)
			unclaim(p, place);
		uncount_source(cf, source);
		return 0;
	}
	count_new(c, cf);
	look->unknown = full; // 2.5 of docs/design/0007-hot-path.md
	limit->track = NONE;
	fill(p, look, limit, s, place, m->id, flags, p->proto);
	// look-ups read the entry after the tag
	store_release(&t->tag[place % WAYS], look->tag | TAG_HALF_OPEN, cf->in_order);
	set_pass(v, USE_NEW, m->id, m->number, m->slot & CACHED_SLOT);
	count_rule(m->id, p->len, p->now);
	return 1;
}
