// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// SYNs that say again what was answered by a cookie a moment ago. They get no other answer, or whoever sends one SYN in our peer's name several times would have us send as
// many answers. A client that has lost the answer asks again after a second (RFC 6298 section 2).
#pragma once

#include "event.h"

enum { ANSWERED = 1024 };
#define REPEAT_TIME 500000000 // ns; as long as the kernel by itself, net.ipv4.tcp_invalid_ratelimit

// One that was answered, on each CPU, at the place that its hash says.
struct answered {
	__u64 syn; // hash of its conversation and sequence number
	__s64 until;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ANSWERED);
	__type(key, __u32);
	__type(value, struct answered);
} answered SEC(".maps");

inline_always struct answered *answered_at(__u64 syn)
{
	__u32 index = syn >> 54;

	return bpf_map_lookup_elem(&answered, &index);
}

// repeated: the SYN at hand says what was answered. It notes in p->syn which one it is, if the short way has found that out.
inline_always int repeated(struct pkt *p)
{
	p->syn = p->missed ? (p->hash ^ p->seq) * 0x9e3779b97f4a7c15ULL : 0;
	struct answered *a = p->syn ? answered_at(p->syn) : NULL;

	return a && a->syn == p->syn && p->now < a->until;
}

// note_answered notes that the SYN at hand is answered.
inline_always void note_answered(struct pkt *p)
{
	struct answered *a = p->syn ? answered_at(p->syn) : NULL;

	if (!a)
		return;
	a->syn = p->syn;
	a->until = p->now + REPEAT_TIME;
}
