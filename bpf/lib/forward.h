// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Forwarding, docs/design/0004-containers.md section 3: a packet is evaluated at ingress and at
// egress, translated, and handed straight to the pod or the NIC. What cannot go straight goes up
// the stack, which routes it, fragments it or answers that it cannot. The other hooks then do what
// remains.
#pragma once

#include "cookie.h"
#include "fast_established.h"

// begin_packet makes the packet a new one to the rules.
__always_inline void begin_packet(struct pkt *p, struct config *cf)
{
	p->random = cf->random ? bpf_get_prandom_u32() : 0;
	p->tags = 0;
	p->second = 0;
	p->offer = OFFER_NONE;
	p->missed = 0;
	p->make = 0;
}

// conclude does what follows an evaluation. It reports whether the packet passes.
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

// refuse_frame drops a packet that the rules did not let pass. An answer is to the packet as it
// came, not as it was translated.
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

// set_endpoint sets which pod, if any, is behind an interface.
__always_inline void set_endpoint(struct pkt_endpoint *pod, __u32 ifindex)
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
	if (rewrite_frame(skb) < 0 || address_frame(skb, p, 1) < 0)
		return TC_ACT_SHOT;
	if (likely(!f->plain))
		return bpf_redirect_peer(p->xmit, 0);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(p->xmit, 0);
}

// to_nic hands a packet that passed to the NIC that its route leads to.
__always_inline int to_nic(struct __sk_buff *skb, struct pkt *p, struct config *cf)
{
	if (rewrite_frame(skb) < 0 || address_frame(skb, p, p->straight) < 0)
		return TC_ACT_SHOT;
	skb->mark = cf->local_mark & ~MARK_KIND;
	if (likely(p->straight))
		return bpf_redirect(p->xmit, 0);
	p->next.nh_family = p->route.family;
	__builtin_memcpy(p->next.nh, p->route.dst, 16);
	return bpf_redirect_neigh(p->xmit, &p->next, sizeof(p->next), 0);
}

// to_host gives a packet of a pod to the host itself. The answer to a call of the host to its own
// port comes in through the loopback, where the kernel checks neither its source nor, for IPv4,
// rp_filter. A pod's call to its own published port comes back to the pod.
__always_inline int to_host(struct __sk_buff *skb, struct pkt *p, struct cpu *c, struct config *cf)
{
	p->dir = DIR_OUT; // otherwise later fragments would take this for an ingress translation
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
	if (rewrite_frame(skb) < 0)
		return TC_ACT_SHOT;
	if (to)
		return address_frame(skb, p, 1) < 0 ? TC_ACT_SHOT : bpf_redirect_peer(p->xmit, 0);
	if (r == NAT_NONE)
		return FWD_STACK;
	__builtin_memset(p->macs, 0, sizeof(p->macs)); // the loopback's own
	if (store_macs(skb, p) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(LOOPBACK, BPF_F_INGRESS);
}

// resolve_endpoints sets what the forwarding cache knows of the packet's addresses. It returns the
// reason to drop the packet for its addresses, or 0.
__noinline int resolve_endpoints(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return REASON_SPOOF;
	struct pkt *p = &c->p;
	struct pkt_endpoint *from = &p->endpoint[DIR_OUT], *to = &p->endpoint[DIR_IN];
	__u8 wrong;
	struct fwd_entry *w = fwd_get(skb, p, f, &wrong);
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

// resolve_translated resolves the addresses after a translation. The sender stays the same,
// although a pod that called itself now has the host's address.
__always_inline int resolve_translated(struct __sk_buff *skb, struct pkt *p)
{
	__u64 hi = p->src_hi, lo = p->src_lo;

	p->src_hi = p->was.src_hi;
	p->src_lo = p->was.src_lo;
	__u8 wrong = resolve_endpoints(skb);
	p->src_hi = hi;
	p->src_lo = lo;
	return wrong;
}

// strange refuses a packet that came in with an address of the host as its source, on a host
// without pods: the stack will not take it, so it makes no state and counts for no source.
// FWD_CONTINUE: it is none.
__noinline int strange(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	if (p->kind != PARSED_IP || p->reason || !claims_host(skb, p))
		return FWD_CONTINUE;
	return drop(skb, p, c, cf, REASON_SPOOF);
}

// before_ingress checks who sent an incoming packet, and translates what comes from outside.
// FWD_CONTINUE: it has to be evaluated.
__noinline int before_ingress(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	read_frame(skb, l2);
	p->first_flow = 0;
	p->translated = 0;
	p->settled = 0;
	p->nat_inner = 0;
	p->endpoint[DIR_IN].known = 0;
	if (p->kind != PARSED_IP || p->reason) {
		set_endpoint(&p->endpoint[DIR_OUT], skb->ifindex);
		if (p->kind != PARSED_ARP || own_arp(skb))
			return FWD_CONTINUE;
		refuse(p, 0); // no field of an earlier packet is reported
		count_pod_drop(p->endpoint[DIR_OUT].place, DIR_OUT);
		return drop(skb, p, c, cf, REASON_SPOOF);
	}
	__u8 wrong = resolve_endpoints(skb);
	__u32 from = p->endpoint[DIR_OUT].known;
	if (unlikely(wrong)) {
		if (from)
			count_pod_drop(p->endpoint[DIR_OUT].place, DIR_OUT);
		return drop(skb, p, c, cf, wrong);
	}
	if (!p->endpoint[DIR_IN].known &&
	    (from ? f->published && own_address(0) : f->published | f->masquerade)) {
		int r = translate_in(skb);
		if (r == NAT_FAILED)
			return drop(skb, p, c, cf, REASON_NAT_PORTS);
		if (r == NAT_DONE && resolve_translated(skb, p))
			return drop(skb, p, c, cf, REASON_SPOOF);
	}
	return FWD_CONTINUE;
}

// checkpoint follows the evaluation of a packet from a pod (DIR_OUT) or to one (DIR_IN), and takes
// what passed out of the pod's bucket. FWD_CONTINUE: the packet is not dropped.
__noinline int checkpoint(struct __sk_buff *skb, __u32 l2, __u32 dir)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	dir &= 1;
	struct pkt_endpoint *pod = &p->endpoint[dir];
	int passed = conclude(skb, c, cf, l2);
	if (likely(passed) && !pod->known)
		return FWD_CONTINUE;
	int slow = passed && over_rate(pod->place, pod->limited, dir, skb->len);
	if (likely(passed && !slow)) {
		count_pod(pod->place, dir, skb->len);
		return FWD_CONTINUE;
	}
	if (pod->known)
		count_pod_drop(pod->place, dir);
	return slow ? drop(skb, p, c, cf, REASON_RATE) : refuse_frame(skb, p);
}

// after_ingress follows the first evaluation of an incoming packet, and finds out where it goes.
// FWD_CONTINUE: it has to be evaluated at egress. FWD_EGRESS: the same state lets it pass there,
// too.
__noinline int after_ingress(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	struct pkt_endpoint *to = &p->endpoint[DIR_IN];

	int r = checkpoint(skb, l2, DIR_OUT);
	if (r != FWD_CONTINUE)
		return r;
	if (p->kind != PARSED_IP || p->reason)
		return FWD_STACK;
	if (to->known) {
		if (!direct(skb, p) || !fits(skb, p, to->mtu)) {
			// The egress hook evaluates it again: stack_egress takes back what is fresh
			// then.
			int why = inward(skb, p, f, META_FRESH);
			if (why)
				return drop(skb, p, c, cf, why);
			return rewrite_frame(skb) < 0 ? TC_ACT_SHOT : FWD_STACK;
		}
		p->xmit = to->ifindex;
	} else if (!p->endpoint[DIR_OUT].known) {
		return FWD_STACK;
	} else if (!direct(skb, p) || !route(skb, p)) {
		p->xmit = 0;
		return f->published && own_address(0) ? to_host(skb, p, c, cf) : FWD_STACK;
	}
	p->dir = DIR_OUT;
	p->second = 1;
	if (!p->settled || p->frag & FRAG_FIRST) // its verdict is recorded for the other fragments
		return FWD_CONTINUE;
	count_rule(p, p->v.id);
	return FWD_EGRESS;
}

// after_egress follows the second evaluation and its checkpoint: it sends the packet.
__noinline int after_egress(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	__u32 pod = p->endpoint[DIR_IN].known;
	int why = pod && f->published | f->masquerade ? inward(skb, p, f, 0) : 0;
	if (unlikely(why))
		return drop(skb, p, c, cf, why);
	// What comes from outside and goes to a pod is already translated.
	if (p->endpoint[DIR_OUT].known && (f->published | (pod ? 0 : f->masquerade)) &&
	    outward(skb, p, pod ? 0 : p->xmit) == NAT_FAILED)
		return drop(skb, p, c, cf, REASON_NAT_PORTS);
	return pod ? to_pod(skb, p, cf, f) : to_nic(skb, p, cf);
}

// forward_in forwards an incoming packet that fast_forward has left. p->recv, p->now and p->random
// are set.
__always_inline int forward_in(struct __sk_buff *skb, struct pkt *p, __u32 l2)
{
	int r = before_ingress(skb, l2);

	if (r != FWD_CONTINUE)
		return r;
	before_evaluate(skb, p);
	evaluate(skb);
	after_evaluate(skb, p);
	r = after_ingress(skb, l2);
	if (r == FWD_CONTINUE)
		evaluate(skb);
	else if (r != FWD_EGRESS)
		return r;
	// Not in after_egress, whose stack would come on top of that of an answer.
	r = checkpoint(skb, l2, DIR_IN);
	return r == FWD_CONTINUE ? after_egress(skb) : r;
}
