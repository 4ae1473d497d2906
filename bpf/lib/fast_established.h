// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path of forwarded packets: of a flow that has a state, between addresses that the
// forwarding cache holds, without translation.
#pragma once

#include "fast_new.h"
#include "fwd_cache.h"

// forwardable: by the forwarding entry of its addresses a packet goes to a pod or a NIC unchanged,
// with no translation and no rate limit.
__always_inline int forwardable(struct fwd_entry *w, struct forwarding *f, __s64 now, __u8 tos)
{
	if (w->to_pod)
		return !(w->from_pod && (f->published || w->origin.limited)) && !w->target.limited;
	return w->from_pod && !(f->published | w->hidden | w->origin.limited) &&
	       route_fresh(w, now, tos);
}

// fast_forward forwards what it can. It returns FWD_CONTINUE for everything else, unchanged.
__noinline int fast_forward(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	__u8 *b = (__u8 *)(long)skb->data, *end = (__u8 *)(long)skb->data_end;
	if (!c || !cf || !f || b + 54 > end || listened(cf, EVENT_PACKET) ||
	    !current_flow(cf->current))
		return FWD_CONTINUE;
	struct pkt *p = &c->p;
	int four = *(__u16 *)(b + 12) == be16(ETH_IP);
	// head: of IP and, when segments are made of it, of what is above; bits: with the length
	// of a TCP header
	__u32 len, head, bits;
	__u8 tos, proto;
	if ((!four && (*(__u16 *)(b + 12) != be16(ETH_IPV6) || b + 74 > end)) ||
	    b[four ? 22 : 21] <= 1 || skb->pkt_type != HOST || skb->vlan_present)
		return FWD_CONTINUE;
	if (four) {
		p->src_hi = p->dst_hi = 0;
		p->src_lo = (__u64)MAPPED << 32 | get32(b + 26);
		p->dst_lo = (__u64)MAPPED << 32 | get32(b + 30);
		len = get16(b + 16);
		head = 20;
		tos = b[15];
		proto = b[23];
		bits = b[46];
	} else {
		p->src_hi = get64(b + 22);
		p->src_lo = get64(b + 30);
		p->dst_hi = get64(b + 38);
		p->dst_lo = get64(b + 46);
		len = get16(b + 18) + 40;
		head = 40;
		tos = b[14] << 4 | b[15] >> 4;
		proto = b[20];
		bits = b[66];
	}
	int known;
	struct fwd_entry *w = fwd_lookup(p, f->serial, &known);
	if (!w || !known || !forwardable(w, f, p->now, tos))
		return FWD_CONTINUE;
	__u32 segment = skb->gso_size;
	head += proto == PROTO_TCP ? (bits >> 4) * 4 : 8;
	if ((segment ? segment + head : len) > w->mtu)
		return FWD_CONTINUE;
	if (!fast_path(skb, cf, 14)) {
		p->missed = 0;
		return FWD_CONTINUE;
	}
	finish(c, cf);
	p->dir = DIR_OUT; // there the same state lets it pass
	count_verdict(c);
	count_rule(p, p->v.id);
	if (w->from_pod)
		count_pod(w->origin.place, DIR_OUT, skb->len);
	if (w->to_pod)
		count_pod(w->target.place, DIR_IN, skb->len);
	__u8 hops = b[21] - 1;
	if (!four && bpf_skb_store_bytes(skb, 21, &hops, 1, BPF_F_RECOMPUTE_CSUM) < 0)
		return TC_ACT_SHOT;
	b = (__u8 *)(long)skb->data;
	if (b + 34 > (__u8 *)(long)skb->data_end)
		return TC_ACT_SHOT;
	if (four)
		age4(b + 14);
	__builtin_memcpy(b, w->macs, 12);
	if (w->to_pod && likely(!f->plain))
		return bpf_redirect_peer(w->ifindex, 0);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(w->ifindex, 0);
}
