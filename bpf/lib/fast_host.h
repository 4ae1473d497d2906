// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The packets of the host itself that the fast path takes where packets are forwarded: those that
// concern no pod, no translation and no published port.
#pragma once

#include "fast_established.h"
#include "forward.h"

// may_be_translated: there may be a translation whose tuple on the wire is the packet's. It
// compares tags only, so rarely another one counts. So does one that is being made.
static __always_inline int may_be_translated(const struct packet *p, struct config *cf)
{
	struct key k = {.proto = p->proto, .flow = NAT_FLOW};
	__u64 same = 0;

	order_ends(&k, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, p->ports);
	__u64 names = names_of(&k), hash = hash_of(cf, &k, names), tag = tag_of(names, hash);
	struct tag_line *a = tags_at(first_set(hash, cf->sets)),
			*b = tags_at(second_set(hash, cf->sets));
	if (!a || !b)
		return 1;
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 in_a = (READ_ONCE(a->tag[i]) ^ tag) & TAG_IDENTITY,
		      in_b = (READ_ONCE(b->tag[i]) ^ tag) & TAG_IDENTITY;
		opaque(in_a); // or the compiler makes branches of it
		opaque(in_b);
		same |= ~(in_a | -in_a) | ~(in_b | -in_b);
	}
	return same >> 63;
}

// may_be_published: the packet may be for a published port, or for an address that leads elsewhere.
static __always_inline int may_be_published(const struct packet *p, struct forwarding *f)
{
	return f->published && (f->masquerade & MASQUERADE_WHOLE || find_port(p));
}

// is_plain_input: the slow path would neither refuse nor translate a packet that comes in, for its
// ends: see before_ingress. With `checked` the forwarding cache has said so of its addresses.
__noinline int is_plain_input(struct cpu *c, __u32 checked)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return 0;
	const struct packet *p = &c->packet;

	if (!checked &&
	    (endpoint_at(p->recv) || pod_at(p->src_hi, p->src_lo) || pod_at(p->dst_hi, p->dst_lo) ||
	     martian(p) || is_own_source(cf, p->version, p->src_hi, p->src_lo)))
		return 0;
	if (!(f->published | f->masquerade))
		return 1;
	// a key between link-local addresses holds the link, too
	return !link_local(p->src_hi, p->src_lo, p->dst_hi, p->dst_lo) &&
	       !may_be_translated(p, cf) && !may_be_published(p, f);
}

// is_plain: the packet is not forwarded by the fast path, and the slow path would only evaluate it.
// One that leaves has to be the host's own, and not for a pod: see stack_egress.
static __always_inline int is_plain(struct __sk_buff *skb, struct cpu *c,
				    const struct forwarding *f, const struct fast_packet *e,
				    __u8 dir, int checked)
{
	struct packet *p = &c->packet;

	if (dir == DIR_OUT)
		return !skb->ingress_ifindex && !endpoint_at(skb->ifindex) &&
		       !((f->published | f->masquerade) && pod_at(e->src_hi, e->src_lo));
	p->src_hi = e->src_hi;
	p->src_lo = e->src_lo;
	p->dst_hi = e->dst_hi;
	p->dst_lo = e->dst_lo;
	p->ports = e->ports;
	p->version = e->version;
	p->proto = e->proto;
	return is_plain_input(c, checked);
}
