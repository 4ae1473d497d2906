// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// SYNs that repeat one that a cookie has just answered. They get no second answer, or a sender that
// forges one SYN of a peer several times would make the host send as many answers. A client that
// has lost the answer sends the SYN again after a second (RFC 6298 section 2).
//
// And acknowledgements that repeat one that has redeemed a cookie: they could open a connection
// again after its end, for as long as the cookie is valid. They take a token of a rule with
// limit-rate.
#pragma once

#include "table_remove.h"

enum { ANSWERED = 1024 };
#define REPEAT_TIME 500000000 // ns; the kernel's own limit, net.ipv4.tcp_invalid_ratelimit

// A SYN that was answered. Each CPU has its own map of them, by hash.
struct answered {
	__u64 syn; // hash of its flow and sequence number
	__s64 until;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ANSWERED);
	__type(key, __u32);
	__type(value, struct answered);
} answered SEC(".maps");

static __always_inline struct answered *answered_at(__u64 syn)
{
	__u32 index = syn >> 54;

	return bpf_map_lookup_elem(&answered, &index);
}

// repeated: the current SYN repeats one that was answered. It sets cookie->syn to a keyed hash of
// the SYN, so no other SYN can be made to look like it.
static __always_inline int repeated(const struct packet *p, struct cookie *cookie,
				    struct config *cf)
{
	__u64 rest = (__u64)p->ports << 32 | p->seq;

	cookie->syn = hash5(cf->seed, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, rest);
	struct answered *a = answered_at(cookie->syn);

	return a && a->syn == cookie->syn && p->now < a->until;
}

// record_answered records that the current SYN is answered.
static __always_inline void record_answered(const struct packet *p, const struct cookie *cookie)
{
	struct answered *a = answered_at(cookie->syn);

	if (!a)
		return;
	a->syn = cookie->syn;
	a->until = p->now + REPEAT_TIME;
}

// the kernel's cookies last for two minutes, of which the first has begun
#define COOKIE_LIFE 128000000000LL

enum { REDEEMED = 1 << 16 };

// Until when a cookie counts as redeemed, by the hash of its flow. A cookie is valid for more than
// one pair of numbers, so these do not count. Flows with the same hash count as one: then the
// acknowledgement takes a token although it is the first.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REDEEMED);
	__type(key, __u32);
	__type(value, __s64);
} redeemed SEC(".maps");

// cookie_hash is a hash of the current flow. It has keys of its own: the client learns its lower
// half (cookie_clock), and with that nothing about where states lie.
static __always_inline __u64 cookie_hash(const struct packet *p, struct config *cf)
{
	return hash5(cf->seed + SEED_COOKIE, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, p->ports);
}

static __always_inline __s64 *redeemed_at(const struct packet *p, struct config *cf)
{
	__u32 index = cookie_hash(p, cf) >> 48;

	return bpf_map_lookup_elem(&redeemed, &index);
}
