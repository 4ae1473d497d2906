// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The way of a packet through the host, docs/design/0004-containers.md section 3: judged on its way
// in and on its way out, translated, and handed straight to the pod or the card. What cannot go
// straight goes up the stack, which routes it, fragments it or answers that it cannot; the hooks on
// the way then do what is left to do.
#pragma once

#include "cookie.h"
#include "pass.h"

// not_judged_yet makes the packet a new one to the rules.
__always_inline void not_judged_yet(struct pkt *p, struct config *cf)
{
	p->random = cf->random ? bpf_get_prandom_u32() : 0;
	p->tags = 0;
	p->second = 0;
	p->offer = OFFER_NONE;
	p->missed = 0;
}

// conclude does what follows a judgement. It returns whether the packet passes.
__always_inline int conclude(struct __sk_buff *skb, struct cpu *c, struct config *cf, __u32 l2)
{
	finish(c, cf);
	if (unlikely(listened(cf, EVENT_PACKET)))
		event_frame(skb, l2);
	return c->p.v.pass;
}

// drop drops a packet for another reason than a rule.
__always_inline int drop(struct __sk_buff *skb, struct pkt *p, struct cpu *c, struct config *cf,
			 __u8 reason)
{
	p->v.pass = 0;
	p->v.reason = reason;
	p->v.answer = ANSWER_NONE;
	p->v.state = USE_NONE;
	p->v.number = 0;
	p->v.id = 0;
	conclude(skb, c, cf, p->l3 == L2_INFINIBAND ? L2_INFINIBAND : p->l3 ? 14 : 0);
	return TC_ACT_SHOT;
}

// refuse_frame ends the way of a packet that was judged and not let through. The answer is one to
// what came, not to what it was translated to.
__always_inline int refuse_frame(struct __sk_buff *skb, struct pkt *p)
{
	if (likely(!p->v.answer))
		return TC_ACT_SHOT;
	if (p->translated)
		become(p, &p->was);
	if (p->second)
		p->dir = DIR_IN; // where the frame still stands
	return reply(skb);
}

// party_at notes which pod, if any, is behind an interface.
__always_inline void party_at(struct party *pod, __u32 ifindex)
{
	struct endpoint *e = endpoint_at(ifindex);

	pod->known = e != NULL;
	if (e) {
		pod->place = e->place;
		pod->limited = e->limited;
	}
}

// direct: nothing about the packet needs the stack.
__always_inline int direct(struct __sk_buff *skb, struct pkt *p)
{
	return p->ttl > 1 && p->l3 == 14 && !p->ip_options &&
	       !(p->ext_hdrs & ~(EXT_FRAGMENT | EXT_DESTINATION)) && skb->pkt_type == HOST &&
	       !skb->vlan_present;
}

__always_inline long store_macs(struct __sk_buff *skb, struct pkt *p)
{
	return bpf_skb_store_bytes(skb, 0, p->macs, 12, 0);
}

// address_frame takes one from the hop limit and, with `macs`, writes the addresses of the next
// hop.
__always_inline long address_frame(struct __sk_buff *skb, struct pkt *p, int macs)
{
	if (p->version == 6)
		return age6(skb, p) < 0 || (macs && store_macs(skb, p) < 0) ? -1 : 0;
	if ((__u8 *)(long)skb->data + 34 > (__u8 *)(long)skb->data_end &&
	    bpf_skb_pull_data(skb, 34) < 0)
		return -1;
	__u8 *b = (__u8 *)(long)skb->data;
	if (b + 34 > (__u8 *)(long)skb->data_end)
		return -1;
	age4(b + 14);
	if (macs)
		__builtin_memcpy(b, p->macs, 12);
	return 0;
}

// to_pod hands a packet that passed to a pod.
__always_inline int to_pod(struct __sk_buff *skb, struct pkt *p, struct config *cf,
			   struct forwarding *f)
{
	if (mangle(skb) < 0 || address_frame(skb, p, 1) < 0)
		return TC_ACT_SHOT;
	if (likely(!f->plain))
		return bpf_redirect_peer(p->xmit, 0);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(p->xmit, 0);
}

// to_card hands a packet that passed to the card that was found for it.
__always_inline int to_card(struct __sk_buff *skb, struct pkt *p, struct config *cf)
{
	if (mangle(skb) < 0 || address_frame(skb, p, p->straight) < 0)
		return TC_ACT_SHOT;
	skb->mark = cf->local_mark & ~MARK_KIND;
	if (likely(p->straight))
		return bpf_redirect(p->xmit, 0);
	p->next.nh_family = p->route.family;
	__builtin_memcpy(p->next.nh, p->route.dst, 16);
	return bpf_redirect_neigh(p->xmit, &p->next, sizeof(p->next), 0);
}

// to_own gives a packet of a pod to the host itself. What answers a call of the host to its own
// port comes in by the loopback, as if it had never been elsewhere: there the kernel minds neither
// its source nor, for IPv4, rp_filter. What a pod called at its own published port comes back to
// it.
__always_inline int to_own(struct __sk_buff *skb, struct pkt *p, struct cpu *c, struct config *cf)
{
	p->dir = DIR_OUT; // or later fragments would take it for a translation on the way in
	int r = outward(skb, p, 0);
	p->dir = DIR_IN;
	if (r == NAT_FAILED)
		return drop(skb, p, c, cf, REASON_NAT_PORTS);
	struct endpoint *to = r == NAT_DONE && direct(skb, p) ? pod_at(p->dst_hi, p->dst_lo) : NULL;
	if (to) {
		__builtin_memcpy(p->macs, to->mac, 6);
		__builtin_memcpy(p->macs + 6, to->host_mac, 6);
		p->xmit = to->ifindex;
		count_pod(to->place, DIR_IN, skb->len);
	}
	if (mangle(skb) < 0)
		return TC_ACT_SHOT;
	if (to)
		return address_frame(skb, p, 1) < 0 ? TC_ACT_SHOT : bpf_redirect_peer(p->xmit, 0);
	if (r == NAT_NONE)
		return GO_UP;
	__builtin_memset(p->macs, 0, sizeof(p->macs)); // the loopback's own
	if (store_macs(skb, p) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(LOOPBACK, BPF_F_INGRESS);
}

// reckon notes what is known of the packet's addresses. It returns the reason to drop the packet
// for them, or 0.
__noinline int reckon(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct forwarding *f = ways();
	if (!c || !f)
		return REASON_SPOOF;
	struct pkt *p = &c->p;
	struct party *from = &p->party[DIR_OUT], *to = &p->party[DIR_IN];
	__u8 wrong;
	struct way *w = way_of(skb, p, f, &wrong);
	if (!w)
		return REASON_SPOOF;
	from->known = w->from_pod;
	from->place = w->origin.place;
	from->limited = w->origin.limited;
	to->known = w->to_pod;
	if (!w->to_pod)
		return wrong;
	to->place = w->target.place;
	to->limited = w->target.limited;
	to->mtu = w->mtu;
	to->ifindex = w->ifindex;
	__builtin_memcpy(p->macs, w->macs, sizeof(p->macs));
	return wrong;
}

// reckon_again follows a translation: the sender is who it was, though a pod that called itself has
// become the host.
__always_inline int reckon_again(struct __sk_buff *skb, struct pkt *p)
{
	__u64 hi = p->src_hi, lo = p->src_lo;

	p->src_hi = p->was.src_hi;
	p->src_lo = p->was.src_lo;
	__u8 wrong = reckon(skb);
	p->src_hi = hi;
	p->src_lo = lo;
	return wrong;
}

// strange refuses a packet that came in with an address of the host as its source, on a host
// without pods: the stack will not take it, so it makes no state and counts for no source. GO_ON:
// it is none.
__noinline int strange(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	if (p->kind != PARSED_IP || p->reason || !claims_host(skb, p))
		return GO_ON;
	return drop(skb, p, c, cf, REASON_SPOOF);
}

// arrive looks at who sent a packet that came in, and translates what came from outside. GO_ON: it
// has to be judged.
__noinline int arrive(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	read_frame(skb, l2);
	p->memo_flow = 0;
	p->translated = 0;
	p->make = 0;
	p->settled = 0;
	p->nat_inner = 0;
	p->party[DIR_IN].known = 0;
	if (p->kind != PARSED_IP || p->reason) {
		party_at(&p->party[DIR_OUT], skb->ifindex);
		if (p->kind != PARSED_ARP || own_arp(skb))
			return GO_ON;
		refuse(p, 0); // nothing of an earlier packet is told
		count_pod_drop(p->party[DIR_OUT].place, DIR_OUT);
		return drop(skb, p, c, cf, REASON_SPOOF);
	}
	__u8 wrong = reckon(skb);
	__u32 from = p->party[DIR_OUT].known;
	if (unlikely(wrong)) {
		if (from)
			count_pod_drop(p->party[DIR_OUT].place, DIR_OUT);
		return drop(skb, p, c, cf, wrong);
	}
	if (!p->party[DIR_IN].known &&
	    (from ? f->published && own_address(0) : f->published | f->masquerade)) {
		int r = translate_in(skb);
		if (r == NAT_FAILED)
			return TC_ACT_SHOT;
		if (r == NAT_DONE && reckon_again(skb, p))
			return drop(skb, p, c, cf, REASON_SPOOF);
	}
	return GO_ON;
}

// checkpoint follows a judgement on the way from a pod (DIR_OUT) or to one (DIR_IN), and takes what
// passed out of the pod's bucket. GO_ON: the packet goes on.
__noinline int checkpoint(struct __sk_buff *skb, __u32 l2, __u32 dir)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	dir &= 1;
	struct party *pod = &p->party[dir];
	int passed = conclude(skb, c, cf, l2);
	if (likely(passed) && !pod->known)
		return GO_ON;
	int slow = passed && over_rate(pod->place, pod->limited, dir, skb->len);
	if (likely(passed && !slow)) {
		count_pod(pod->place, dir, skb->len);
		return GO_ON;
	}
	if (pod->known)
		count_pod_drop(pod->place, dir);
	return slow ? drop(skb, p, c, cf, REASON_RATE) : refuse_frame(skb, p);
}

// halfway follows the first judgement of a packet that came in, and finds out where it goes. GO_ON:
// it has to be judged on its way out. GO_OUT: it passes there as it did here, by the same state.
__noinline int halfway(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	struct party *to = &p->party[DIR_IN];

	int r = checkpoint(skb, l2, DIR_OUT);
	if (r != GO_ON)
		return r;
	if (p->kind != PARSED_IP || p->reason)
		return GO_UP;
	if (to->known) {
		if (!direct(skb, p) || !fits(skb, p, to->mtu)) {
			// The hook on the way out judges it again: leave() takes back what is fresh
			// then.
			int why = inward(skb, p, f, META_FRESH);
			if (why)
				return drop(skb, p, c, cf, why);
			return mangle(skb) < 0 ? TC_ACT_SHOT : GO_UP;
		}
		p->xmit = to->ifindex;
	} else if (!p->party[DIR_OUT].known) {
		return GO_UP;
	} else if (!direct(skb, p) || !route(skb, p)) {
		p->xmit = 0;
		return f->published && own_address(0) ? to_own(skb, p, c, cf) : GO_UP;
	}
	p->dir = DIR_OUT;
	p->second = 1;
	if (!p->settled || p->frag & FRAG_FIRST) // whose verdict is noted for the other fragments
		return GO_ON;
	count_rule(p, p->v.id);
	return GO_OUT;
}

// depart follows the second judgement and its checkpoint: the packet goes.
__noinline int depart(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	__u32 pod = p->party[DIR_IN].known;
	int why = pod && f->published | f->masquerade ? inward(skb, p, f, 0) : 0;
	if (unlikely(why))
		return drop(skb, p, c, cf, why);
	// What came from outside and goes to a pod is as it has to be.
	if (p->party[DIR_OUT].known && (f->published | (pod ? 0 : f->masquerade)) &&
	    outward(skb, p, pod ? 0 : p->xmit) == NAT_FAILED)
		return drop(skb, p, c, cf, REASON_NAT_PORTS);
	return pod ? to_pod(skb, p, cf, f) : to_card(skb, p, cf);
}

// carry_in carries a packet that came in and that pass_by has left. p->recv, p->now and p->random
// are set.
__always_inline int carry_in(struct __sk_buff *skb, struct pkt *p, __u32 l2)
{
	int r = arrive(skb, l2);

	if (r != GO_ON)
		return r;
	before_judge(skb, p);
	judge(skb);
	after_judge(skb, p);
	r = halfway(skb, l2);
	if (r == GO_ON)
		judge(skb);
	else if (r != GO_OUT)
		return r;
	// Not in depart, whose stack would come on top of that of an answer.
	r = checkpoint(skb, l2, DIR_IN);
	return r == GO_ON ? depart(skb) : r;
}
