// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path of forwarded packets: of a flow that has a state, between addresses that the
// forwarding cache holds, without translation.
#pragma once

#include "fast_established.h"
#include "fwd_cache.h"

// forwardable: by the forwarding entry of its addresses a packet goes to a pod or a NIC unchanged,
// with no translation and no rate limit.
static __always_inline int forwardable(struct fwd_entry *w, struct forwarding *f, __s64 now,
				       __u8 tos)
{
	if (w->to_pod)
		return !(w->from_pod && (f->published || w->origin.limited)) && !w->target.limited;
	return w->from_pod && !(f->published | w->masqueraded | w->origin.limited) &&
	       route_fresh(w, now, tos);
}

// fast_send hands a packet that passed to the pod or the NIC of its forwarding entry.
static __always_inline int fast_send(struct __sk_buff *skb, const struct fwd_entry *w,
				     const struct config *cf, const struct forwarding *f, int four)
{
	void *frame = (void *)(long)skb->data;

	if (frame + 34 > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	if (!four) {
		__u8 hops = ((struct ip6 *)(frame + 14))->hops - 1;
		if (bpf_skb_store_bytes(skb, 14 + 7, &hops, 1, BPF_F_RECOMPUTE_CSUM) < 0)
			return TC_ACT_SHOT;
	}
	frame = (void *)(long)skb->data;
	if (frame + 34 > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	if (four)
		age4(frame + 14);
	__builtin_memcpy(frame, w->macs, sizeof(w->macs));
	if (w->to_pod)
		return enter_pod(skb, cf, f, w->ifindex, w->from_pod);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(w->ifindex, 0);
}

// fast_forward forwards what it can. It returns FWD_CONTINUE for everything else, unchanged.
__noinline int fast_forward(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	const void *frame = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (!c || !cf || !f || frame + 54 > end || event_wanted(cf, EVENT_PACKET) ||
	    !exists(current_flow(cf->current)))
		return FWD_CONTINUE;
	struct packet *p = &c->packet;
	const struct ethernet *eth = frame;
	const struct ip4 *h4 = frame + sizeof(*eth);
	const struct ip6 *h6 = frame + sizeof(*eth);
	int four = eth->type == be16(ETH_IP), known;
	if (!four && (eth->type != be16(ETH_IPV6) || frame + 74 > end))
		return FWD_CONTINUE;
	// bytes of the IP header, below with the transport header, for segments of a GSO packet
	__u32 head = four ? sizeof(*h4) : sizeof(*h6);
	struct fast_packet e;
	if (four)
		fast_ip4(&e, h4);
	else
		fast_ip6(&e, h6);
	fast_l4(&e, frame + sizeof(*eth) + head);
	if (e.ttl <= 1 || skb->pkt_type != HOST || skb->vlan_present)
		return FWD_CONTINUE;
	p->src_hi = e.src_hi;
	p->src_lo = e.src_lo;
	p->dst_hi = e.dst_hi;
	p->dst_lo = e.dst_lo;
	struct fwd_entry *w = fwd_lookup(p, &c->fwd, f->serial, &known);
	if (!w || !known || !forwardable(w, f, p->now, e.tos))
		return FWD_CONTINUE;
	__u32 segment = skb->gso_size;
	head += e.proto == PROTO_TCP ? fast_tcp_header(&e) : sizeof(struct udp);
	if ((segment ? segment + head : e.len) > w->mtu)
		return FWD_CONTINUE;
	// Not new flows where ports are published: they end a translation of a published port with
	// the same ends. Nor where netfilter may translate them: then they go up the stack.
	if (fast_path(skb, c, cf, 14, f->published | f->netfilter, META_REDIRECT) == FAST_NOT) {
		c->look.missed = NONE;
		return FWD_CONTINUE;
	}
	finish(c, cf);
	if (unlikely(!c->verdict.pass)) {
		if (w->from_pod)
			count_pod_drop(w->origin.place, DIR_OUT);
		return TC_ACT_SHOT;
	}
	p->dir = DIR_OUT; // at egress the same state lets it pass
	count_verdict(c);
	count_rule(c->verdict.id, p->len, p->now);
	if (w->from_pod)
		count_pod(w->origin.place, DIR_OUT, skb->len);
	if (w->to_pod)
		count_pod(w->target.place, DIR_IN, skb->len);
	return fast_send(skb, w, cf, f, four);
}
