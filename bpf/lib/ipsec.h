// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The IPsec policies of the host (xfrm), for packets that no longer meet them in the stack,
// docs/design/0004-containers.md section 3. Written by the agent; the programs cannot ask the
// kernel.
#pragma once

#include "decode.h"
#include "pod.h"

// A policy. The kernel asks them in this order, and the first that matches decides. What it
// compares are the bits of the masks.
struct policy {
	struct address src, dst, src_mask, dst_mask;
	__u32 ports, ports_mask; // source << 16 | destination; of ICMP type and code
	__u32 mark, mark_mask;
	__u8 version, proto; // proto is 0 for any
	__u8 flags, pad;     // enum policy_flag
	__u32 pad2;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_POLICIES);
	__type(key, __u32);
	__type(value, struct policy);
} policies SEC(".maps");

// What the policies are asked about.
struct policy_query {
	struct address src, dst;
	__u32 ports, mark;
	__u8 version, proto;
	__u8 ways;  // enum policy_flag: those of a direction
	__u8 whole; // any protocol, ports and mark
	__u32 protects;
};

static __always_inline int differ_under(const struct address *a, const struct address *b,
					const struct address *mask)
{
	return (((a->hi ^ b->hi) & mask->hi) | ((a->lo ^ b->lo) & mask->lo)) != 0;
}

// ask_policy asks one policy, and ends the loop if it matches. A policy that protects some
// protocol, ports or mark matches a query about all; one that protects nothing has to be about all,
// too.
static long ask_policy(__u32 index, void *ctx)
{
	struct policy_query *q = ctx;
	const struct policy *x = bpf_map_lookup_elem(&policies, &index);

	if (!x)
		return 1;
	if (!(x->flags & q->ways) || x->version != q->version ||
	    differ_under(&x->src, &q->src, &x->src_mask) ||
	    differ_under(&x->dst, &q->dst, &x->dst_mask))
		return 0;
	__u32 protects = x->flags & POLICY_PROTECTS;
	if (q->whole) {
		if (!protects && (x->proto | x->ports_mask | x->mark_mask))
			return 0;
	} else if ((x->proto && x->proto != q->proto) | ((x->ports ^ q->ports) & x->ports_mask) |
		   ((x->mark ^ q->mark) & x->mark_mask)) {
		return 0;
	}
	q->protects = protects;
	return 1;
}

// protected reports whether a policy of `way` wants the current packet, with this skb->mark,
// encrypted, or refuses it. With `answer` whether one may want that for an answer to the packet,
// with any mark.
__noinline int protected(struct cpu *c, __u32 way, __u32 answer, __u32 mark)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return 1;
	const struct packet *p = &c->packet;
	struct policy_query q = {.version = p->version,
				 .proto = p->proto,
				 .ways = way,
				 .whole = answer,
				 .ports = p->ports,
				 .mark = mark};

	if (is_icmp(p))
		q.ports = (__u32)p->icmp_type << 16 | p->icmp_code;
	q.src.hi = answer ? p->dst_hi : p->src_hi;
	q.src.lo = answer ? p->dst_lo : p->src_lo;
	q.dst.hi = answer ? p->src_hi : p->dst_hi;
	q.dst.lo = answer ? p->src_lo : p->dst_lo;
	bpf_loop(f->policies, ask_policy, &q, 0);
	return q.protects != 0;
}
