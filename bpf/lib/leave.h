// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Packets that leave by the stack: what the host sends itself, and what could not go straight.
#pragma once

#include "forward.h"

// unsettled: the flow of a packet that goes to a pod by the stack has not begun or is at its end,
// which its translation has to know. In between the answers keep that alive.
__always_inline int unsettled(struct pkt *p)
{
	__u32 place = p->memo_place;
	struct set *s = p->memo_flow ? set_at(place / WAYS) : NULL;

	return !s ||
	       phase_of(low_side(s, place), high_side(s, place), p->proto) != PHASE_ESTABLISHED;
}

// leave follows the judgement of a packet that leaves by the stack.
__noinline int leave(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	int r = checkpoint(skb, l2, DIR_IN);
	if (p->kind != PARSED_IP || p->reason || !(f->published | f->masquerade))
		return r == GO_ON ? GO_UP : r;
	if (p->party[DIR_IN].known) {
		if (r != GO_ON) {
			nat_forget(1);
			return r;
		}
		if (unsettled(p) && nat_own(0))
			nat_touch(skb, p);
		return GO_UP;
	}
	if (r != GO_ON)
		return r;
	if (!pod_at(p->src_hi, p->src_lo) && !is_icmp(p))
		return GO_UP;
	if (outward(skb, p, skb->ifindex) == NAT_FAILED)
		return drop(skb, p, c, cf, REASON_NAT_PORTS);
	return mangle(skb) < 0 ? TC_ACT_SHOT : GO_UP;
}

// forget makes the packet one that was not judged yet, and leaves for a pod or not.
__noinline int forget(__u32 ifindex)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	c->p.memo_flow = 0;
	c->p.translated = 0;
	c->p.nat_inner = 0;
	party_at(&c->p.party[DIR_IN], ifindex);
	return 0;
}

__always_inline int carry_out(struct __sk_buff *skb, __u32 l2)
{
	read_frame(skb, l2);
	forget(skb->ifindex);
	judge(skb);
	return leave(skb, l2);
}

// hand_in judges what the host sends to a pod and stands at the wrong side of its host end for, see
// call_own, and puts it into the pod.
__always_inline int hand_in(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	p->dir = DIR_OUT;
	p->recv = 0;
	p->xmit = skb->ifindex;
	p->now = coarse_now(cf);
	not_judged_yet(p, cf);
	int r = carry_out(skb, 14);
	if (r != GO_UP)
		return r;
	return bpf_skb_change_type(skb, HOST) < 0 ? TC_ACT_SHOT :
						    bpf_redirect_peer(skb->ifindex, 0);
}

// marked lets a packet pass that Weir made itself. What it sends in the name of a pod, keepalive
// probes, is translated as the pod's own packets are.
__noinline int marked(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	if (likely(!(f->masquerade | f->published)))
		return GO_UP;
	p->now = coarse_now(cf);
	p->dir = DIR_OUT;
	p->xmit = skb->ifindex;
	read_frame(skb, l2);
	p->translated = 0;
	if (p->kind != PARSED_IP || p->reason || !pod_at(p->src_hi, p->src_lo))
		return GO_UP;
	make_key(skb, p);
	if (!p->is_error && nat_follow(0))
		become(p, &p->goal);
	return mangle(skb) < 0 ? TC_ACT_SHOT : GO_UP;
}
