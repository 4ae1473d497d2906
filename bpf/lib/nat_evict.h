// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which translation of a sample is evicted when ports or places run out. An expired one comes
// first, then a closed one, a half-open one, and the one that has been idle longest. That of an
// established TCP or SCTP connection is never evicted.
#pragma once

#include "state.h"

enum nat_class { NAT_OVER, NAT_CLOSED, NAT_HALF_OPEN, NAT_IDLE, NAT_KEPT };

// At most NAT_ROUNDS times NAT_SETS sets are searched, and the search ends after NAT_SAMPLE
// translations that could be evicted. The tags of the sets lie together, so most of this is a
// sequential read.
enum { NAT_ROUNDS = 64, NAT_SETS = 32, NAT_SAMPLE = 4 };
// a younger translation whose other half is missing may still be being made
#define NAT_YOUNG 1000000000LL
enum { NAT_CLASS_SHIFT = 60 };

// inner_of returns the place of the inner entry of a translation of which one entry lies at a
// place, none if the other one does not belong to it.
static __always_inline struct maybe inner_of(struct set *s, __u32 place)
{
	struct side *low = low_side(s, place);
	__u32 partner = partner_of(low);
	struct tag_line *t = tags_at(partner / WAYS);
	__u64 tag = t ? READ_ONCE(t->tag[partner & (WAYS - 1)]) : 0;
	struct set *o = set_at(partner / WAYS + depends_on(tag));

	if (!o || !is_partner(tag, low_side(o, partner), low, place))
		return NONE;
	return some(low->flags & META_WIRE ? partner : place);
}

// nat_class returns how early a translation is evicted, by its inner entry.
static __always_inline int nat_class(struct config *cf, struct side *low, struct side *high,
				     __u8 proto, __s64 now)
{
	__u32 phase = phase_in(high);

	if (expired(cf, low, high, proto, now))
		return NAT_OVER;
	if (phase == PHASE_CLOSED || phase == PHASE_RESET)
		return NAT_CLOSED;
	if (phase != PHASE_ESTABLISHED)
		return NAT_HALF_OPEN;
	return proto == PROTO_TCP || proto == PROTO_SCTP ? NAT_KEPT : NAT_IDLE;
}

// nat_weigh weighs the translation with an entry at a place for eviction. With `pod`, 1 + a pod's
// place, it has to be one of that pod. It returns its enum nat_class.
__noinline int nat_weigh(struct cpu *c, __u32 place, __u32 pod)
{
	struct config *cf = settings();
	struct tag_line *t = tags_at(place / WAYS);
	__u64 tag = t ? READ_ONCE(t->tag[place & (WAYS - 1)]) : 0, rank = 0;
	struct set *s = set_at(place / WAYS + depends_on(tag));
	if (!c || !cf || !s)
		return NAT_KEPT;
	const struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	struct side *low = low_side(s, place);
	int class = NAT_OVER;
	if ((tag & TAG_MASK) != TAG_LIVE || low->rule != NAT_RULE)
		return NAT_KEPT;
	struct maybe found = inner_of(s, place);
	if (exists(found)) {
		__u32 inner = number(found);
		struct set *i = set_at(inner / WAYS);
		if (!i)
			return NAT_KEPT;
		struct side *il = low_side(i, inner), *ih = high_side(i, inner);
		if (pod && pod_in(ih).plus1 != pod)
			return NAT_KEPT;
		class = nat_class(cf, il, ih, tag_proto(tag), p->now);
		rank = (__u64) class << NAT_CLASS_SHIFT |
		       (READ_ONCE(il->last) & ((1ULL << NAT_CLASS_SHIFT) - 1));
	} else if (pod || p->now - low->created < NAT_YOUNG) {
		return NAT_KEPT;
	}
	if (class == NAT_KEPT)
		return NAT_KEPT;
	WRITE_ONCE(nat->victim.found, READ_ONCE(nat->victim.found) + 1);
	if (rank < nat->victim.rank) {
		nat->victim.rank = rank;
		nat->victim.place = place;
		nat->victim.tag = tag;
	}
	return class;
}

// nat_sample weighs the translations of some sets, from `first` on and wrapping around, until there
// are enough. It returns how many sets it looked at.
__noinline __u32 nat_sample(struct cpu *c, __u32 first, __u32 sets, __u32 pod)
{
	if (!c || !sets)
		return NAT_SETS;
	for (int i = 0; i < NAT_SETS; i++) {
		__u32 n = (first + i) % sets;
		struct tag_line *t = tags_at(n);
		if (!t)
			return NAT_SETS;
		for (int j = 0; j < WAYS; j++) {
			__u64 tag = READ_ONCE(t->tag[j]);
			if ((tag & TAG_MASK) == TAG_LIVE && (tag >> 16 & 0xff) == NAT_FLOW)
				nat_weigh(c, n * WAYS + j, pod);
		}
		if (READ_ONCE(c->nat.victim.found) >= NAT_SAMPLE)
			return i + 1;
	}
	return NAT_SETS;
}

static __always_inline void nat_weigh_set(struct cpu *c, __u32 n)
{
	struct tag_line *t = tags_at(n);

	for (int i = 0; t && i < WAYS; i++) {
		if ((READ_ONCE(t->tag[i]) & TAG_MASK) == TAG_LIVE)
			nat_weigh(c, n * WAYS + i, 0);
	}
}

static __always_inline void nat_reset_victim(struct nat *nat)
{
	nat->victim.found = 0;
	nat->victim.rank = ~0ULL;
}

// nat_evict_found removes the translation that was chosen, if there is one.
static __always_inline int nat_evict_found(struct cpu *c, const struct nat *nat)
{
	struct gauge *g = gauges_now();

	if (nat->victim.rank == ~0ULL ||
	    !remove_state(c, nat->victim.place, nat->victim.tag, GONE_RECLAIMED))
		return 0;
	if (g)
		__sync_fetch_and_add(&g->nats_evicted, 1);
	return 1;
}

// nat_evict evicts a translation of a pod, 1 + its place, with 0 of any pod.
__noinline int nat_evict(struct cpu *c, __u32 pod)
{
	struct config *cf = settings();
	struct gauge *g = gauges_now();
	if (!c || !cf || !g || !cf->sets)
		return 0;
	__u32 start = READ_ONCE(g->nat_clock_hand), seen = 0;
	nat_reset_victim(&c->nat);
	for (int i = 0; i < NAT_ROUNDS && READ_ONCE(c->nat.victim.found) < NAT_SAMPLE; i++)
		seen += nat_sample(c, start + seen, cf->sets, pod);
	WRITE_ONCE(g->nat_clock_hand, (start + seen) % cf->sets);
	return nat_evict_found(c, &c->nat);
}

// If no translation could be evicted, no packet searches again for this time.
#define NAT_BACKOFF 10000000LL

// A CPU that loses a race tries again: those that won it have got what they needed, so no CPU loses
// many.
enum { NAT_RACES = 8 };

// nat_evict_for evicts a translation of the pod at a place, NAT_ALL for any. A search that finds
// none is not repeated for a while, by no CPU: the senders of refused packets would take all time.
static __always_inline int nat_evict_for(struct cpu *c, __u32 place)
{
	struct nat_count *of = bpf_map_lookup_elem(&nat_counts, &place);
	if (!of || c->packet.now < READ_ONCE(of->no_evict_until))
		return 0;
	for (__u32 i = 0; i < NAT_RACES; i++) {
		if (nat_evict(c, place == NAT_ALL ? 0 : some(place).plus1))
			return 1;
		if (c->nat.victim.rank == ~0ULL) {
			WRITE_ONCE(of->no_evict_until, c->packet.now + NAT_BACKOFF);
			return 0;
		} // else another CPU has found the same one
	}
	return 0;
}

// nat_evict_sets evicts a translation in one of the two sets of look->hash.
__noinline int nat_evict_sets(struct cpu *c, __u32 sets)
{
	if (!c)
		return 0;
	nat_reset_victim(&c->nat);
	nat_weigh_set(c, first_set(c->look.hash, sets));
	nat_weigh_set(c, second_set(c->look.hash, sets));
	return nat_evict_found(c, &c->nat);
}
