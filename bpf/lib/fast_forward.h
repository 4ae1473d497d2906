// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path of forwarded packets: of a flow that has a state, between addresses that the
// forwarding cache holds, without translation.
#pragma once

#include "fast_established.h"
#include "forward.h"

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

// fast_age6 decrements the hop limit of an IPv6 header as age6 does, in less time. The header has
// no checksum of its own. So the sum of the whole packet that a NIC has made (CHECKSUM_COMPLETE)
// changes by one, in the upper byte of a word in memory order. Without such a sum the helper does
// nothing.
static __always_inline void fast_age6(struct __sk_buff *skb, struct ip6 *h)
{
	h->hops--;
	bpf_csum_update(skb, ~0x0100U);
}

// fast_send hands a packet that passed to the pod or the NIC of its forwarding entry.
static __always_inline int fast_send(struct __sk_buff *skb, const struct fwd_entry *w,
				     const struct config *cf, const struct forwarding *f, int four)
{
	void *frame = (void *)(long)skb->data;

	if (frame + 34 > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	if (four)
		age4(frame + 14);
	else
		fast_age6(skb, frame + 14);
	__builtin_memcpy(frame, w->macs, sizeof(w->macs));
	if (w->to_pod)
		return enter_pod(skb, cf, f, w->ifindex, w->from_pod);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(w->ifindex, 0);
}

// fast_route returns the forwarding entry of a packet that may be forwarded unchanged, NULL if
// there is none, or the rules look no state up. It sets *to_host if the entry shows that the packet
// may have its source, and that neither end is a pod.
static __always_inline struct fwd_entry *fast_route(struct __sk_buff *skb, struct cpu *c,
						    struct config *cf, struct forwarding *f,
						    const struct fast_packet *e, int *to_host)
{
	struct packet *p = &c->packet;
	int known;

	if (e->ttl <= 1 || skb->pkt_type != HOST || skb->vlan_present ||
	    !exists(current_flow(cf->current)))
		return NULL;
	p->src_hi = e->src_hi;
	p->src_lo = e->src_lo;
	p->dst_hi = e->dst_hi;
	p->dst_lo = e->dst_lo;
	struct fwd_entry *w = fwd_lookup(p, &c->fwd, f->serial, e->tos, &known);
	if (!w || !known)
		return NULL;
	*to_host = !w->from_pod && !w->to_pod;
	if (!forwardable(w, f, p->now, e->tos))
		return NULL;
	// with the transport header, for segments of a GSO packet
	__u32 segment = skb->gso_size, head = e->len - e->rest;
	head += e->proto == PROTO_TCP ? fast_tcp_header(e) : sizeof(struct udp);
	return (segment ? segment + head : e->len) <= w->mtu ? w : NULL;
}

// fast_leave sends a packet on by its forwarding entry. At egress the same state lets it pass: its
// rule has counted it for both hooks.
static __always_inline int fast_leave(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				      struct forwarding *f, struct fwd_entry *w, __u32 len,
				      int four)
{
	count_passed(c, DIR_OUT, len);
	if (w->from_pod)
		count_pod(w->origin.place, DIR_OUT, skb->len);
	if (w->to_pod)
		count_pod(w->target.place, DIR_IN, skb->len);
	return fast_send(skb, w, cf, f, four);
}
