// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The host as a client of its own published ports: its packets would not leave the loopback.
#pragma once

#include "egress.h"

// nat_create_loopback makes the translation of a flow from the host to one of its own ports. The
// source port changes only when it has to.
static __always_inline int nat_create_loopback(struct __sk_buff *skb, struct cpu *c,
					       const struct packet *p, struct nat *nat)
{
	__u32 port = nat->new.ports >> 16, rest = nat->new.ports & 0xffff;
	int why = nat_create_published(skb, c, META_FRESH);

	for (__u32 i = 1; i < NAT_TRIES && why == REASON_NAT_PORTS && p->proto != PROTO_SCTP; i++) {
		nat->new.ports = (port * i + 0x9e37 * i) << 16 | rest;
		why = nat_create_published(skb, c, META_FRESH);
	}
	return why;
}

// needs_host_source: a packet of the host needs another source. It has a loopback address, which
// the pod could not answer, or it goes to a service, whose address the stack took as the source,
// too.
static __always_inline int needs_host_source(const struct packet *p, const struct nat *nat)
{
	return is_loopback(p->version, p->src_hi, p->src_lo) ||
	       (exists(nat->backend) && p->src_hi == p->dst_hi && p->src_lo == p->dst_lo);
}

// translate_loopback finds or makes the translation of a packet of the host to one of its own
// ports, and sets the fields of the packet. FWD_CONTINUE: it goes to a pod.
static __always_inline int translate_loopback(struct __sk_buff *skb, struct cpu *c,
					      struct config *cf, struct forwarding *f)
{
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	p->dir = DIR_OUT; // of the record by which later fragments follow the first
	if (unlikely(p->frag & (FRAG_FIRST | FRAG_LATER)))
		tuple_of(p, &nat->before);
	if (p->frag & FRAG_LATER)
		return nat_fragment(c, FRAG_FOLLOW) ? FWD_CONTINUE : FWD_STACK;
	make_key(skb, c, p, look);
	if (look->is_error || look->keyed != KEY_SET)
		return FWD_STACK;
	if (!nat_follow(c, META_WIRE)) {
		if (!find_published(c, 1))
			return nat->make == MAKE_REFUSAL ? drop(skb, c, cf, REASON_NO_BACKEND) :
							   FWD_STACK;
		if (for_host(skb, c))
			return FWD_STACK;
		tuple_of(p, &nat->orig);
		if ((needs_host_source(p, nat) && !host_source(p, nat, f)) || !choose_source(c) ||
		    nat_create_loopback(skb, c, p, nat))
			return drop(skb, c, cf, REASON_NAT_PORTS);
	}
	apply_tuple(p, nat, &nat->new);
	if (p->frag & FRAG_FIRST)
		nat_fragment(c, FRAG_NOTE);
	return FWD_CONTINUE;
}

// loopback_to_pod forwards a packet that the host sends to itself to a pod if its port is
// published.
__noinline int loopback_to_pod(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return FWD_STACK;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct forward *fwd = &c->fwd;

	nat->translated = 0;
	nat->make = MAKE_NONE;
	nat->nat_rule = 0;
	nat->instance = 0;
	look->first_flow = NONE;
	if (p->kind != PARSED_IP || p->reason || !f->published)
		return FWD_STACK;
	int r = translate_loopback(skb, c, cf, f);
	if (r != FWD_CONTINUE)
		return r;
	struct endpoint *to = pod_at(p->dst_hi, p->dst_lo);
	if (!to)
		return drop(skb, c, cf, REASON_NO_BACKEND);
	__builtin_memcpy(fwd->macs, to->mac, 6);
	__builtin_memcpy(fwd->macs + 6, to->host_mac, 6);
	p->xmit = to->ifindex;
	if (rewrite_frame(skb, c) < 0 || store_macs(skb, fwd) < 0)
		return TC_ACT_SHOT;
	if (p->proto == PROTO_TCP || (p->len <= to->mtu && !(p->frag & (FRAG_FIRST | FRAG_LATER))))
		return bpf_redirect(p->xmit, 0);
	// The packet fits the loopback's MTU and not the pod's, and it is too late to make
	// fragments: it enters the pod whole, past the queue. So do all fragments of a datagram
	// larger than the loopback's MTU: a short one must not overtake the first.
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(p->xmit, BPF_F_INGRESS);
}
