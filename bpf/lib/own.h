// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The host's calls to its own published ports, which never leave the loopback by themselves.
#pragma once

#include "leave.h"

// make_own makes the translation for a call of the host to one of its own ports. The source port
// changes only when it has to.
__always_inline int make_own(struct __sk_buff *skb, struct pkt *p)
{
	__u32 port = p->goal.ports >> 16, rest = p->goal.ports & 0xffff;
	int why = nat_make(skb, META_FRESH);

	for (__u32 i = 1; i < NAT_TRIES && why == REASON_NAT_PORTS && p->proto != PROTO_SCTP; i++) {
		p->goal.ports = (port * i + 0x9e37 * i) << 16 | rest;
		why = nat_make(skb, META_FRESH);
	}
	return why;
}

// translate_own finds or makes the translation of a call of the host to one of its own ports, and
// sets the fields of the packet. GO_ON: it goes to a pod.
__always_inline int translate_own(struct __sk_buff *skb, struct pkt *p, struct cpu *c,
				  struct config *cf, struct forwarding *f)
{
	p->dir = DIR_OUT; // of the note by which later fragments follow the first
	if (unlikely(p->frag & (FRAG_FIRST | FRAG_LATER)))
		tuple_of(p, &p->before);
	if (p->frag & FRAG_LATER)
		return nat_fragment(0) ? GO_ON : GO_UP;
	make_key(skb, p);
	if (p->is_error || p->keyed != KEY_SET)
		return GO_UP;
	if (!nat_follow(META_WIRE)) {
		if (!find_published(0))
			return GO_UP;
		tuple_of(p, &p->was);
		if (is_loopback(p->version, p->src_hi, p->src_lo) && !own_source(p, f))
			return TC_ACT_SHOT;
		int why = make_own(skb, p);
		if (why)
			return drop(skb, p, c, cf, REASON_NAT_PORTS);
	}
	become(p, &p->goal);
	if (p->frag & FRAG_FIRST)
		nat_fragment(1);
	return GO_ON;
}

// call_own carries what the host says to itself: to a pod, if it is meant for a published port.
__noinline int call_own(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return GO_UP;
	struct pkt *p = &c->p;

	p->translated = 0;
	p->memo_flow = 0;
	if (p->kind != PARSED_IP || p->reason || !f->published)
		return GO_UP;
	int r = translate_own(skb, p, c, cf, f);
	if (r != GO_ON)
		return r;
	struct endpoint *to = pod_at(p->dst_hi, p->dst_lo);
	if (!to)
		return TC_ACT_SHOT;
	__builtin_memcpy(p->macs, to->mac, 6);
	__builtin_memcpy(p->macs + 6, to->host_mac, 6);
	p->xmit = to->ifindex;
	if (mangle(skb) < 0 || store_macs(skb, p) < 0)
		return TC_ACT_SHOT;
	if (p->proto == PROTO_TCP || (p->len <= to->mtu && !(p->frag & (FRAG_FIRST | FRAG_LATER))))
		return bpf_redirect(p->xmit, 0);
	// The loopback had room for it, the pod's interface has not, and it is too late to make
	// fragments: it goes in whole, beside the queue. So do all the fragments of what was too
	// large for the loopback, too: a short one must not overtake the first.
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(p->xmit, BPF_F_INGRESS);
}
