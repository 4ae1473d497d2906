// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// SYNs that repeat one that a cookie has just answered. They get no second answer, or a sender that
// forges one SYN of a peer several times would make the host send as many answers. A client that
// has lost the answer sends the SYN again after a second (RFC 6298 section 2).
//
// And acknowledgements that repeat one that has redeemed a cookie: they could open a connection
// again after its end, for as long as the cookie is valid. They take a token of a rule with
// limit-rate, and do not count as cookies that came back.
#pragma once

#include "table_remove.h"

enum { ANSWERED_SYNS = 1024 };
#define REPEAT_TIME 500000000 // ns; the kernel's own limit, net.ipv4.tcp_invalid_ratelimit

// A SYN that was answered. Each CPU has its own map of them, by hash.
struct answered_syn {
	__u64 syn; // hash of its flow and sequence number
	__s64 until;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ANSWERED_SYNS);
	__type(key, __u32);
	__type(value, struct answered_syn);
} answered_syns SEC(".maps");

static __always_inline struct answered_syn *answered_at(__u64 syn)
{
	__u32 index = syn >> 54;

	return bpf_map_lookup_elem(&answered_syns, &index);
}

// repeated: the current SYN repeats one that was answered. It sets cookie->syn to a keyed hash of
// the SYN, so no other SYN can be made to look like it.
static __always_inline int repeated(const struct packet *p, struct cookie *cookie,
				    struct config *cf)
{
	__u64 rest = (__u64)p->ports << 32 | p->seq;

	cookie->syn = hash5(cf->seed, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, rest);
	struct answered_syn *a = answered_at(cookie->syn);

	return a && a->syn == cookie->syn && p->now < a->until;
}

// record_answered records that the current SYN is answered.
static __always_inline void record_answered(const struct packet *p, const struct cookie *cookie)
{
	struct answered_syn *a = answered_at(cookie->syn);

	if (!a)
		return;
	a->syn = cookie->syn;
	a->until = p->now + REPEAT_TIME;
}

// the kernel's cookies last for two minutes, of which the first has begun
#define COOKIE_LIFE 128000000000LL

enum { REDEEMED_SETS = 1 << 13 };
#define REDEEMED_TICKS (COOKIE_LIFE >> TICK_SHIFT)

// What is known about the flow of an acknowledgement. A cookie is valid for more than one pair of
// numbers, so these do not count.
enum redeemed_before {
	REDEEMED_NEVER, // no cookie of it was redeemed
	REDEEMED_MAYBE, // there is no telling: more flows were than are remembered
	REDEEMED_BEFORE
};

// The flows of cookies that were redeemed: bits of the hash << 32 | the tick until which that
// counts.
struct redeemed_set {
	__u64 flow[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REDEEMED_SETS);
	__type(key, __u32);
	__type(value, struct redeemed_set);
} redeemed SEC(".maps");

// cookie_hash is a hash of the current flow. It has keys of its own: the client learns its lower
// half (cookie_clock), and with that nothing about where states lie.
static __always_inline __u64 cookie_hash(const struct packet *p, struct config *cf)
{
	return hash5(cf->seed + SEED_COOKIE, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, p->ports);
}

// find_redeemed looks the current flow up. It sets cookie->redeemed_before, and scratch->way to
// where the flow is or will be: in place of one that no longer counts, else of the oldest.
__noinline int find_redeemed(struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct cookie *cookie = &c->cookie;
	struct scratch *scratch = &c->scratch;
	__u64 hash = cookie_hash(&c->packet, cf);
	__u32 index = hash >> 51, tick = (__u64)c->packet.now >> TICK_SHIFT;
	struct redeemed_set *s = bpf_map_lookup_elem(&redeemed, &index);
	if (!s)
		return 0;
	cookie->redeemed_hash = hash;
	WRITE_ONCE(cookie->redeemed_before, REDEEMED_MAYBE);
	WRITE_ONCE(scratch->left, ~0U);
	for (int i = 0; i < WAYS; i++) {
		__u64 flow = READ_ONCE(s->flow[i]);
		__u32 left = (__u32)flow - tick;
		if (left > REDEEMED_TICKS) {
			left = 0;
			if (READ_ONCE(cookie->redeemed_before) == REDEEMED_MAYBE)
				WRITE_ONCE(cookie->redeemed_before, REDEEMED_NEVER);
		} else if (flow >> 32 == (__u32)hash) {
			WRITE_ONCE(cookie->redeemed_before, REDEEMED_BEFORE);
			WRITE_ONCE(scratch->way, i);
			return 0;
		}
		if (left < READ_ONCE(scratch->left)) {
			WRITE_ONCE(scratch->left, left);
			WRITE_ONCE(scratch->way, i);
		}
	}
	return 0;
}

// record_redeemed records that the cookie of the current flow was redeemed, and reports whether it
// is the first of the flow, as far as that is known.
__noinline int record_redeemed(struct cpu *c)
{
	if (!c)
		return 0;
	const struct cookie *cookie = &c->cookie;
	__u64 hash = cookie->redeemed_hash, now = c->packet.now;
	__u32 index = hash >> 51, first = cookie->redeemed_before != REDEEMED_BEFORE;
	struct redeemed_set *s = bpf_map_lookup_elem(&redeemed, &index);

	find_redeemed(c); // the evaluation has used scratch
	if (s)
		WRITE_ONCE(s->flow[c->scratch.way & (WAYS - 1)],
			   hash << 32 | (__u32)((now >> TICK_SHIFT) + REDEEMED_TICKS));
	return first;
}
