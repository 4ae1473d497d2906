// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The IPsec policies of the host (xfrm), for packets that no longer meet them in the stack,
// docs/design/0004-containers.md section 3. Written by the agent; the programs cannot ask the
// kernel.
#pragma once

#include "decode.h"
#include "hash.h"
#include "pod.h"

// A policy. The kernel asks them in this order, and the first that matches decides. What it
// compares are the bits of the masks.
//
// The search does not ask all. Policies with the same version and masks are a group. A group has as
// many buckets as policies, and the masked addresses say in which bucket a policy is. The first
// policy of a group describes it. A bucket lies in some entry of the map, whose policy may be in
// another one. NO_POLICY ends buckets and groups.
struct policy {
	struct address src, dst, src_mask, dst_mask;
	__u32 ports, ports_mask; // source << 16 | destination; of ICMP type and code
	__u32 mark, mark_mask;
	__u8 version, proto; // proto is 0 for any
	__u8 flags, pad;     // enum policy_flag
	__u16 next;	     // the next policy in the same bucket
	__u16 first;	     // the first policy in the bucket that lies here
	// of a group: where its buckets lie, how many it has, the first policy of the next group
	__u16 bucket, buckets, group;
	__u16 pad2;
};

// Two halves, of which forwarding.policies names the one in force. Places count from its beginning.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_POLICIES);
	__type(key, __u32);
	__type(value, struct policy);
} policies SEC(".maps");

static __always_inline struct policy *policy_at(const struct policy_query *q, __u32 place)
{
	__u32 index = q->half + place;

	return bpf_map_lookup_elem(&policies, &index);
}

// policy_bucket returns in which of the buckets of a group policies for these addresses are. The
// hash has no key: who sends packets does not choose the policies. bucketOf of firewall/kernel does
// the same.
static __always_inline __u32 policy_bucket(const struct policy *group, const struct address *src,
					   const struct address *dst)
{
	__u64 h = (src->hi & group->src_mask.hi) * GOLDEN;

	h = ((h ^ h >> 32) + (src->lo & group->src_mask.lo)) * GOLDEN;
	h = ((h ^ h >> 32) + (dst->hi & group->dst_mask.hi)) * GOLDEN;
	h = ((h ^ h >> 32) + (dst->lo & group->dst_mask.lo)) * GOLDEN;
	return group->bucket + ((h >> 32) * group->buckets >> 32);
}

static __always_inline int differ_under(const struct address *a, const struct address *b,
					const struct address *mask)
{
	return (((a->hi ^ b->hi) & mask->hi) | ((a->lo ^ b->lo) & mask->lo)) != 0;
}

// policy_matches: one that protects some protocol, ports or mark matches a query about all; one
// that protects nothing has to be about all, too.
static __always_inline int policy_matches(const struct policy *x, const struct policy_query *q)
{
	if (!(x->flags & q->ways) || x->version != q->version ||
	    differ_under(&x->src, &q->src, &x->src_mask) ||
	    differ_under(&x->dst, &q->dst, &x->dst_mask))
		return 0;
	if (q->whole)
		return (x->flags & POLICY_PROTECTS) || !(x->proto | x->ports_mask | x->mark_mask);
	return !((x->proto && x->proto != q->proto) | ((x->ports ^ q->ports) & x->ports_mask) |
		 ((x->mark ^ q->mark) & x->mark_mask));
}

// ask_policy asks the next policy of a bucket, or the first one of the bucket of the next group.
// The policies of a bucket, and the groups by their first policies, are in order: what lies behind
// a policy that matches comes after it.
static long ask_policy(__u32 step, void *unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 1;
	struct policy_query *q = &c->policy;
	__u32 at = q->at;

	if (at >= q->found) {
		const struct policy *group = policy_at(q, q->group);
		if (!group || q->group >= q->found)
			return 1;
		q->group = group->group;
		if (group->version != q->version)
			return 0;
		const struct policy *b = policy_at(q, policy_bucket(group, &q->src, &q->dst));
		if (!b)
			return 1;
		at = b->first;
		if (at >= q->found)
			return 0;
	}
	const struct policy *x = policy_at(q, at);
	if (!x)
		return 1;
	q->at = x->next;
	if (policy_matches(x, q)) {
		q->found = at;
		q->protects = (x->flags & POLICY_PROTECTS) != 0;
	}
	return 0;
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
	struct policy_query *q = &c->policy;
	__u32 asked = READ_ONCE(f->policies);

	q->version = p->version;
	q->proto = p->proto;
	q->ways = way;
	q->whole = answer != 0;
	q->ports = is_icmp(p) ? (__u32)p->icmp_type << 16 | p->icmp_code : p->ports;
	q->mark = mark;
	q->src.hi = answer ? p->dst_hi : p->src_hi;
	q->src.lo = answer ? p->dst_lo : p->src_lo;
	q->dst.hi = answer ? p->src_hi : p->dst_hi;
	q->dst.lo = answer ? p->src_lo : p->dst_lo;
	q->half = asked & POLICIES_SECOND ? MAX_POLICIES : 0;
	q->group = 0;
	q->at = q->found = NO_POLICY;
	q->protects = 0;
	// Each group is searched once at most, and each policy asked once.
	bpf_loop(2 * (asked & (POLICIES_SECOND - 1)), ask_policy, NULL, 0);
	return READ_ONCE(q->protects);
}
