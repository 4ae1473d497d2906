// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Repetitions of a SYN that a cookie has just answered. They get no second answer: a sender that
// forges the same SYN several times would make the host send as many answers to its victim. A
// client that has not received the answer sends the SYN again after a second (RFC 6298 section 2).
#pragma once

#include "remove.h"

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
