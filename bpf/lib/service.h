// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Services, docs/design/0004-containers.md section 6: an address and a port that lead to one of
// several pods. A flow leads to the same one for as long as it lives. Written by the agent.
#pragma once

#include "pod.h"

struct backend {
	struct address addr;
	__u32 port;
	__u32 place; // in backend_counts and backend_trials
};

// A service is replaced as a whole. Its flows are divided into parts of the same size by a hash
// that other hosts cannot compute; slot has the backend of each part. A part of a backend on trial
// goes to the one in `other` once the backend has had the flows that it is tried with.
struct service {
	__u32 count; // backends that get flows, 0: none
	__u32 pad;
	__u64 seed[SERVICE_SEEDS];
	// parts in which a connection has begun since the agent last wrote the service: only the
	// first of each is a draw
	__u64 seen[SERVICE_SLOTS / 64];
	__u8 slot[SERVICE_SLOTS];
	__u8 other[SERVICE_SLOTS];
	struct backend backend[MAX_BACKENDS];
};

// TCP connections of a backend: those that began, and how it answered to their SYN. Each counts as
// long as its translation lives, so no client counts twice with the same ports.
struct backend_count {
	__u64 begun, accepted, refused;
	// of those accepted, those that were the first of their part: each is a draw at random
	// among the backends, whatever the client knows of earlier ones
	__u64 drawn;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct published_key);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BACKEND_PLACES);
	__type(key, __u32);
	__type(value, struct backend_count);
} backend_counts SEC(".maps");

// With how many begun connections a backend on trial gets no more, 0 if it is not on trial. Only
// the agent writes it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BACKEND_PLACES);
	__type(key, __u32);
	__type(value, __u64);
} backend_trials SEC(".maps");

// tried_enough: a backend is on trial and has had the flows that it is tried with.
static __always_inline int tried_enough(__u32 place)
{
	__u64 *most = bpf_map_lookup_elem(&backend_trials, &place);
	if (!most || likely(!READ_ONCE(*most)))
		return 0;
	struct backend_count *n = bpf_map_lookup_elem(&backend_counts, &place);
	return n && READ_ONCE(n->begun) >= READ_ONCE(*most);
}

// living returns the backend that a part of the flows goes to. It returns NULL if its pod is gone,
// and the agent has not yet taken it out of the service.
static __always_inline struct backend *living(struct service *s, __u32 part)
{
	part &= SERVICE_SLOTS - 1;
	struct backend *b = &s->backend[s->slot[part] & (MAX_BACKENDS - 1)];
	if (unlikely(tried_enough(b->place)))
		b = &s->backend[s->other[part] & (MAX_BACKENDS - 1)];
	return pod_at(b->addr.hi, b->addr.lo) ? b : NULL;
}

// The distance between the parts that living_of tries.
enum { NEXT_PART = SERVICE_SLOTS / 4 + 1 };

// living_of tries four parts, the given one first, without a loop: Linux 6.1 refuses the one that
// clang makes (TestBackEdges).
static __always_inline struct backend *living_of(struct service *s, __u32 part)
{
	struct backend *b = living(s, part);

	if (!b)
		b = living(s, part + NEXT_PART);
	if (!b)
		b = living(s, part + 2 * NEXT_PART);
	return b ? b : living(s, part + 3 * NEXT_PART);
}

// choose_backend sets nat->new to the backend of the packet's flow, and nat->backend. It returns 0
// if the service under a key has none: then the packet is to be refused.
static __always_inline int choose_backend(const struct packet *p, struct nat *nat,
					  const struct published_key *k)
{
	struct service *s = bpf_map_lookup_elem(&services, k);

	nat->make = MAKE_REFUSAL;
	if (!s || !s->count)
		return 0;
	nat->part = hash5(s->seed, p->src_hi, p->src_lo, (__u64)p->proto << 32 | p->ports,
			  p->dst_hi, p->dst_lo) &
		    (SERVICE_SLOTS - 1);
	struct backend *b = living_of(s, nat->part);
	if (!b)
		return 0;
	nat->make = MAKE_NONE;
	nat->backend = some(b->place);
	nat->new.dst_hi = b->addr.hi;
	nat->new.dst_lo = b->addr.lo;
	nat->new.ports = (nat->new.ports & 0xffff0000) | (b->port & 0xffff);
	return 1;
}

static __always_inline struct backend_count *count_of(struct maybe backend)
{
	__u32 place = number(backend);
	return exists(backend) ? bpf_map_lookup_elem(&backend_counts, &place) : NULL;
}

// begin_backend counts a connection that has begun, and reports whether it is the first of its part
// of the flows.
static __always_inline int begin_backend(const struct packet *p, const struct nat *nat,
					 struct service *s)
{
	struct backend_count *n = count_of(nat->backend);
	__u32 part = nat->part;

	if (!n || p->proto != PROTO_TCP || (p->tcp_flags & (TH_SYN | TH_ACK)) != TH_SYN)
		return 0;
	__sync_fetch_and_add(&n->begun, 1);
	__u64 *seen = s ? &s->seen[part / 64 & (SERVICE_SLOTS / 64 - 1)] : NULL,
	      bit = 1ULL << part % 64;
	return seen && !(READ_ONCE(*seen) & bit) && !(or_ordered(seen, bit) & bit);
}

// count_answer counts what a backend first says to a connection, which its translation notes.
// Nothing that the client sends counts, so a connection counts as answered even if the answers get
// lost.
static __always_inline void count_answer(const struct packet *p, struct side *high)
{
	struct backend_count *n = count_of(backend_in(high));
	__u32 accepts = (p->tcp_flags & (TH_SYN | TH_ACK)) == (TH_SYN | TH_ACK);

	if (!n || !(accepts || p->tcp_flags & TH_RST) ||
	    READ_ONCE(side_nat_word(high)) & NAT_ANSWERED)
		return;
	__u32 word = or_ordered(&side_nat_word(high), NAT_ANSWERED);
	if (word & NAT_ANSWERED) // on another CPU at this moment
		return;
	__sync_fetch_and_add(accepts ? &n->accepted : &n->refused, 1);
	if (accepts && word & NAT_DRAWN)
		__sync_fetch_and_add(&n->drawn, 1);
}
