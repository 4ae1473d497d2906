// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The way of a packet through the host, docs/design/0004-containers.md section 3: judged on its way in and on its way out, translated, and handed
// straight to the pod or the card. What cannot go straight goes up the stack, which routes it, fragments it or answers that it cannot; the
// hooks on the way then do what is left to do.
#pragma once

#include "reply.h"
#include "translate.h"

enum { GO_UP = TC_ACT_UNSPEC, GO_ON = 100, GO_OUT, LOOPBACK = 1 };
// The mark of a packet that was judged on its way out already is the local mark without its lowest bit, which is always set.
enum { MARK_KIND = 1 };

inline_always int drop(struct pkt *p, struct cpu *c, struct config *cf, __u8 reason)
{
	p->v.pass = 0;
	p->v.reason = reason;
	p->v.answer = ANSWER_NONE;
	p->v.state = USE_NONE;
	p->v.number = 0;
	p->v.id = 0;
	finish(c, cf);
	return TC_ACT_SHOT;
}

// conclude does what follows a judgement. It returns whether the packet passes.
inline_always int conclude(struct __sk_buff *skb, struct cpu *c, struct config *cf, __u32 l2)
{
	finish(c, cf);
	if (unlikely(listened(cf, EVENT_PACKET)))
		event_frame(skb, l2);
	return c->p.v.pass;
}

// refuse_frame ends the way of a packet that was judged and not let through. The answer is one to what came, not to what it was translated to.
inline_always int refuse_frame(struct __sk_buff *skb, struct pkt *p)
{
	if (likely(!p->v.answer))
		return TC_ACT_SHOT;
	if (p->translated)
		become(p, &p->was);
	p->dir = DIR_IN; // the frame still stands where it came in
	return reply(skb);
}

// martian: RFC 1812 5.3.7, RFC 4291 2.5.3.
inline_always int martian(struct pkt *p)
{
	__u32 s = p->src_lo, d = p->dst_lo;

	if (p->version == 4)
		return s >> 24 == 127 || d >> 24 == 127 || !(d >> 24) || s >> 28 == 14 || s == 0xffffffff;
	return (!p->src_hi && p->src_lo == 1) || (!p->dst_hi && p->dst_lo <= 1) || p->src_hi >> 56 == 0xff;
}

// may_send: the source is the pod's, or the packet is part of neighbour discovery.
inline_always int may_send(struct pkt *p, struct endpoint *e)
{
	for (__u32 i = 0; i < MAX_POD_ADDRESSES; i++) {
		if (i < e->count && e->addr[i].lo == p->src_lo && e->addr[i].hi == p->src_hi)
			return 1;
	}
	return essential(p) && (p->src_hi >> 54 == 0xfe80 >> 6 || !(p->src_hi | p->src_lo));
}

// sender_wrong returns the reason to drop a packet for its addresses alone, or 0.
inline_always __u8 sender_wrong(struct pkt *p, struct endpoint *from)
{
	if (from) {
		if (!may_send(p, from))
			return REASON_SPOOF;
		return martian(p) ? REASON_MARTIAN : 0;
	}
	return pod_at(p->src_hi, p->src_lo) ? REASON_SPOOF : 0;
}

// direct: nothing about the packet needs the stack.
inline_always int direct(struct __sk_buff *skb, struct pkt *p)
{
	return p->ttl > 1 && p->l3 == 14 && !p->ip_options && !(p->ext_hdrs & ~(EXT_FRAGMENT | EXT_DESTINATION)) && skb->pkt_type == HOST &&
	       !skb->vlan_present;
}

inline_always int fits(struct __sk_buff *skb, struct pkt *p, __u32 mtu)
{
	__u32 segment = skb->gso_size;

	return (segment ? segment + p->payload : p->len) <= mtu;
}

inline_always long store_macs(struct __sk_buff *skb, struct pkt *p)
{
	return bpf_skb_store_bytes(skb, 0, p->macs, 12, 0);
}

// aim notes the pod that the packet goes to.
inline_always void aim(struct pkt *p, struct endpoint *to)
{
	p->target.known = 1;
	p->target.place = to->place;
	p->target.limited = to->limited;
	p->target.mtu = to->mtu;
	p->target.ifindex = to->ifindex;
	__builtin_memcpy(p->macs, to->mac, 6);
	__builtin_memcpy(p->macs + 6, to->host_mac, 6);
}

// route finds the card that a packet of a pod leaves by. It returns 0 if the stack has to.
inline_always int route(struct __sk_buff *skb, struct pkt *p)
{
	struct bpf_fib_lookup *way = &p->route;
	__be32 *words = p->new_words;

	__builtin_memset(way, 0, sizeof(*way));
	way->ifindex = skb->ifindex;
	address_words(p, words, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo);
	if (p->version == 4) {
		way->family = AF_INET;
		way->flowinfo = p->tos;
		way->src[0] = words[0];
		way->dst[0] = words[1];
	} else {
		way->family = AF_INET6;
		__builtin_memcpy(way->src, words, 16);
		__builtin_memcpy(way->dst, words + 4, 16);
	}
	if (bpf_fib_lookup(skb, way, sizeof(*way), 0) != FIB_SUCCESS)
		return 0;
	__u32 ifindex = way->ifindex;
	if (!bpf_map_lookup_elem(&cards, &ifindex) || !fits(skb, p, way->tot_len))
		return 0;
	p->xmit = ifindex;
	return 1;
}

// to_pod hands a packet that passed to a pod.
inline_always int to_pod(struct __sk_buff *skb, struct pkt *p, struct config *cf, struct forwarding *f)
{
	if (mangle(skb) < 0 || age(skb, p) < 0 || store_macs(skb, p) < 0)
		return TC_ACT_SHOT;
	count_pod(p->target.place, DIR_IN, skb->len);
	if (likely(!f->plain))
		return bpf_redirect_peer(p->xmit, 0);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(p->xmit, 0);
}

// to_card hands a packet that passed to the card that was found for it.
inline_always int to_card(struct __sk_buff *skb, struct pkt *p, struct config *cf)
{
	if (mangle(skb) < 0 || age(skb, p) < 0)
		return TC_ACT_SHOT;
	p->next.nh_family = p->route.family;
	__builtin_memcpy(p->next.nh, p->route.dst, 16);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect_neigh(p->xmit, &p->next, sizeof(p->next), 0);
}

// to_own gives a packet of a pod to the host itself. What the host called at a loopback address comes back from there: the stack wants to see ::1 on the
// loopback alone.
inline_always int to_own(struct __sk_buff *skb, struct pkt *p, struct cpu *c, struct config *cf)
{
	if (translate_out(skb, 0) == NAT_FAILED)
		return drop(p, c, cf, REASON_NAT_PORTS);
	int six = p->version == 6 && is_loopback(6, p->dst_hi, p->dst_lo);
	if (mangle(skb) < 0)
		return TC_ACT_SHOT;
	if (!six)
		return GO_UP;
	__builtin_memset(p->macs, 0, sizeof(p->macs)); // the loopback's own
	if (bpf_skb_store_bytes(skb, 0, p->macs, sizeof(p->macs), 0) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(LOOPBACK, BPF_F_INGRESS);
}

// arrive looks at who sent a packet that came in, and translates what came from outside. GO_ON: it has to be judged.
checked_once int arrive(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	read_frame(skb, l2);
	struct endpoint *from = endpoint_at(skb->ifindex);

	p->memo_flow = 0;
	p->translated = 0;
	p->make = 0;
	p->settled = 0;
	p->target.known = 0;
	p->origin.known = from != NULL;
	if (from) {
		p->origin.place = from->place;
		p->origin.limited = from->limited;
	}
	if (p->kind != PARSED_IP || p->reason)
		return GO_ON;
	__u8 wrong = sender_wrong(p, from);
	if (unlikely(wrong)) {
		if (from)
			count_pod_drop(from->place, DIR_OUT);
		return drop(p, c, cf, wrong);
	}
	struct endpoint *to = pod_at(p->dst_hi, p->dst_lo);
	if (!to && (from ? f->published && own_address(0) : f->published | f->masquerade)) {
		int r = translate_in(skb);
		if (r == NAT_FAILED)
			return TC_ACT_SHOT;
		if (r == NAT_DONE)
			to = pod_at(p->dst_hi, p->dst_lo);
	}
	if (to)
		aim(p, to);
	return GO_ON;
}

// halfway follows the first judgement of a packet that came in, and finds out where it goes. GO_ON: it has to be judged on its way out. GO_OUT: it passes
// there as it did here, by the same state.
checked_once int halfway(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	__u32 from = p->origin.known;

	if (!conclude(skb, c, cf, l2)) {
		if (from)
			count_pod_drop(p->origin.place, DIR_OUT);
		return refuse_frame(skb, p);
	}
	if (from) {
		if (over_rate(p->origin.place, p->origin.limited, DIR_OUT, skb->len)) {
			count_pod_drop(p->origin.place, DIR_OUT);
			return drop(p, c, cf, REASON_RATE);
		}
		count_pod(p->origin.place, DIR_OUT, skb->len);
	}
	if (p->kind != PARSED_IP || p->reason)
		return GO_UP;
	if (p->target.known) {
		if (p->make) {
			int why = nat_make(skb, 0);
			if (why)
				return drop(p, c, cf, why);
		}
		if (!direct(skb, p) || !fits(skb, p, p->target.mtu))
			return mangle(skb) < 0 ? TC_ACT_SHOT : GO_UP;
		p->xmit = p->target.ifindex;
	} else if (!from) {
		return GO_UP;
	} else if (!direct(skb, p) || !route(skb, p)) {
		return f->published && own_address(0) ? to_own(skb, p, c, cf) : GO_UP;
	}
	p->dir = DIR_OUT;
	p->second = 1;
	if (!p->settled || p->frag & FRAG_FIRST) // whose verdict is noted for the other fragments
		return GO_ON;
	count_rule(p, p->v.id);
	return GO_OUT;
}

// depart follows the second judgement: the packet goes.
checked_once int depart(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	__u32 pod = p->target.known;

	p->second = 0;
	if (!conclude(skb, c, cf, l2)) {
		if (pod)
			count_pod_drop(p->target.place, DIR_IN);
		return refuse_frame(skb, p);
	}
	if (pod && over_rate(p->target.place, p->target.limited, DIR_IN, skb->len)) {
		count_pod_drop(p->target.place, DIR_IN);
		return drop(p, c, cf, REASON_RATE);
	}
	// What came from outside and goes to a pod is as it has to be.
	if (p->origin.known && (f->published | (pod ? 0 : f->masquerade)) && translate_out(skb, pod ? 0 : p->xmit) == NAT_FAILED)
		return drop(p, c, cf, REASON_NAT_PORTS);
	return pod ? to_pod(skb, p, cf, f) : to_card(skb, p, cf);
}

// carry_in carries a packet that came in. p->recv, p->now and p->random are set.
inline_always int carry_in(struct __sk_buff *skb, __u32 l2)
{
	int r = arrive(skb, l2);

	if (r != GO_ON)
		return r;
	judge(skb);
	r = halfway(skb, l2);
	if (r == GO_ON)
		judge(skb);
	else if (r != GO_OUT)
		return r;
	return depart(skb, l2);
}

// forget makes the packet one that was not judged yet.
checked_once int forget(__u32 unused)
{
	struct cpu *c = this_cpu();
	if (c)
		c->p.memo_flow = 0;
	return unused;
}

// leave follows the judgement of a packet that leaves by the stack.
checked_once int leave(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	struct endpoint *to = endpoint_at(skb->ifindex);

	p->translated = 0;
	if (!conclude(skb, c, cf, l2)) {
		if (to)
			count_pod_drop(to->place, DIR_IN);
		return unlikely(p->v.answer) ? reply(skb) : TC_ACT_SHOT;
	}
	if (to) {
		if (over_rate(to->place, to->limited, DIR_IN, skb->len)) {
			count_pod_drop(to->place, DIR_IN);
			return drop(p, c, cf, REASON_RATE);
		}
		count_pod(to->place, DIR_IN, skb->len);
		return GO_UP;
	}
	if (p->kind != PARSED_IP || p->reason || !(f->published | f->masquerade))
		return GO_UP;
	if (!pod_at(p->src_hi, p->src_lo) && !is_icmp(p))
		return GO_UP;
	if (translate_out(skb, skb->ifindex) == NAT_FAILED)
		return drop(p, c, cf, REASON_NAT_PORTS);
	return mangle(skb) < 0 ? TC_ACT_SHOT : GO_UP;
}

inline_always int carry_out(struct __sk_buff *skb, __u32 l2)
{
	read_frame(skb, l2);
	forget(0);
	judge(skb);
	return leave(skb, l2);
}

// marked lets a packet pass that Weir made itself, or that was judged on its way out already. What Weir sends in the name of a pod, keepalive probes, is
// translated as the pod's own packets are.
checked_once int marked(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;

	if (skb->mark != cf->local_mark) {
		skb->mark = 0;
		return GO_UP;
	}
	if (likely(!(f->masquerade | f->published)))
		return GO_UP;
	p->now = bpf_ktime_get_coarse_ns();
	read_frame(skb, l2);
	p->translated = 0;
	if (p->kind != PARSED_IP || p->reason || !pod_at(p->src_hi, p->src_lo))
		return GO_UP;
	make_key(skb, p);
	if (!p->is_error && nat_follow(0))
		become(p, &p->goal);
	return mangle(skb) < 0 ? TC_ACT_SHOT : GO_UP;
}
