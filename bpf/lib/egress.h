// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Packets that leave through the stack: those of the host itself, and those that could not be
// redirected.
#pragma once

#include "forward.h"

// begins_or_ends: the flow of a packet that goes to a pod through the stack is beginning or ending,
// which its translation has to record. In between the answers keep the translation alive.
static __always_inline int begins_or_ends(const struct packet *p, const struct lookup *look)
{
	__u32 place = look->first_place;
	struct set *s = exists(look->first_flow) ? set_at(place / WAYS) : NULL;

	return !s ||
	       phase_of(low_side(s, place), high_side(s, place), p->proto) != PHASE_ESTABLISHED;
}

// touch_if_begins_or_ends keeps the translation of a packet to a pod alive while its flow is
// beginning or ending. With `from_client` the packet is from the client of a published port.
__noinline int touch_if_begins_or_ends(struct __sk_buff *skb, struct cpu *c, __u32 from_client)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;

	if (!begins_or_ends(p, look) || !nat_find_inner(c))
		return 0;
	__u32 inner = number(nat->inner);
	struct set *s = set_at(inner / WAYS);
	if (!s)
		return 0;
	struct side *low = low_side(s, inner), *high = high_side(s, inner),
		    *d = nat->from ? high : low;
	if (expired(cf, low, high, p->proto, p->now)) // the sweep has not removed it yet
		return 0;
	if (from_client && (low->flags & META_SOURCE || !(d->flags & META_MADE)))
		return 0;
	nat_touch(skb, c, p, look, nat);
	return 1;
}

// take_query ends the translation of a pod's query with the tuple of one of the host, which would
// get no answers. The pod's next one leaves with another id.
__noinline int take_query(struct __sk_buff *skb, struct cpu *c)
{
	if (!c || !is_icmp_query(c->packet.version, c->packet.icmp_type))
		return 0;
	struct lookup *look = &c->look;

	make_key(skb, c, &c->packet, look);
	if (look->keyed != KEY_SET || !nat_find(c))
		return 0;
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	return s && low_side(s, place)->flags & META_WIRE &&
	       remove_state(c, place, look->tag, GONE_RECYCLED);
}

// stack_egress follows the checkpoint of a packet that leaves through the stack, which returned r.
__noinline int stack_egress(struct __sk_buff *skb, struct cpu *c, int r)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	const struct forward *fwd = &c->fwd;

	if (p->kind != PARSED_IP || p->reason || !(f->published | f->masquerade))
		return r == FWD_CONTINUE ? FWD_STACK : r;
	__u32 to_pod = fwd->endpoint[DIR_IN].is_pod, ifindex = to_pod ? 0 : skb->ifindex;
	__u32 from_pod = (!to_pod || f->published) && pod_at(p->src_hi, p->src_lo) != NULL;
	// a frame that is not for the host's link-layer address is bridged
	__u32 bridged = skb->ingress_ifindex && skb->pkt_type != HOST;
	__u32 routed =
		nat_for_others(f) && skb->ingress_ifindex && !bridged && !to_pod && !from_pod;
	if (unlikely(c->walk.next_hop) && !to_pod)
		ifindex = fwd->hop_ifindex;
	if (r != FWD_CONTINUE) {
		// The answer would go back through the stack, untranslated.
		if ((to_pod | routed) && nat_forget(c, FORGET_FRESH))
			return TC_ACT_SHOT;
		return r;
	}
	if (to_pod | routed)
		touch_if_begins_or_ends(skb, c, routed);
	// What answers a pod as a client of a pod's published port is translated. So are errors
	// of the host about the path to that pod. Other packets to a pod are not.
	if (!from_pod && !routed && (bridged || !is_icmp(p) || (to_pod && !f->published)))
		return FWD_STACK;
	if (unlikely(is_icmp(p)) && !(to_pod | routed) && !from_pod && !skb->ingress_ifindex)
		take_query(skb, c);
	nat->instance = routed ? c->walk.nat : 0;
	int why = translate_leaving(skb, c, p, look, nat, f, ifindex);
	if (unlikely(why))
		return drop(skb, c, cf, why);
	return rewrite_frame(skb, c) < 0 ? TC_ACT_SHOT : FWD_STACK;
}

// note_egress notes that a packet of the originator leaves the stack as it went in: netfilter does
// not translate its flow.
__noinline int note_egress(struct cpu *c)
{
	if (!c)
		return 0;
	__u32 flags = originated(&c->look);
	if (unlikely((flags & (META_CAME_IN | META_REDIRECT)) == META_CAME_IN))
		set_redirect(&c->look);
	return 0;
}

// reset_egress clears what a first evaluation leaves, and sets which pod the packet leaves for, if
// any.
__noinline int reset_egress(struct cpu *c, __u32 ifindex)
{
	if (!c)
		return 0;
	c->look.first_flow = NONE;
	c->nat.translated = 0;
	c->nat.inner = NONE;
	set_endpoint(&c->fwd.endpoint[DIR_IN], ifindex);
	return 0;
}

static __always_inline int forward_out(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	read_frame(skb, c, l2);
	reset_egress(c, skb->ifindex);
	evaluate(skb, c);
	note_egress(c);
	// Not in stack_egress, whose stack would add to that of an answer.
	int r = checkpoint(skb, c, l2, DIR_IN);
	if (likely(r != FWD_HOP))
		return stack_egress(skb, c, r);
	// an answer quotes the packet before its translation
	r = stack_egress(skb, c, resolve_next_hop(skb, c, l2));
	if (r == FWD_STACK)
		return send_hop(skb, c, l2);
	return r == FWD_ANSWER ? answer_hop(skb, c) : r;
}

// deliver_to_pod evaluates a packet of the host that loopback_to_pod has redirected to the ingress
// of a pod's host end, and puts it into the pod.
static __always_inline int deliver_to_pod(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct packet *p = &c->packet;

	p->dir = DIR_OUT;
	p->recv = 0;
	p->xmit = skb->ifindex;
	p->now = coarse_now(cf);
	begin_packet(c, cf);
	c->look.missed = NONE;
	int r = forward_out(skb, c, 14);
	if (r != FWD_STACK)
		return r;
	return bpf_skb_change_type(skb, HOST) < 0 ? TC_ACT_SHOT :
						    bpf_redirect_peer(skb->ifindex, 0);
}

// pass_own_packet lets a packet pass that Weir made itself. Keepalive probes and answers in the
// name of a pod, or of another host behind this one, are translated as its own packets are.
__noinline int pass_own_packet(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;

	if (likely(!(f->masquerade | f->published)))
		return FWD_STACK;
	p->now = coarse_now(cf);
	p->dir = DIR_OUT;
	p->xmit = skb->ifindex;
	read_frame(skb, c, l2);
	nat->translated = 0;
	if (p->kind != PARSED_IP || p->reason ||
	    (!nat_for_others(f) && !pod_at(p->src_hi, p->src_lo)))
		return FWD_STACK;
	make_key(skb, c, p, look);
	if (!nat_follow(c, 0))
		return FWD_STACK;
	if (!look->is_error)
		apply_tuple(p, nat, &nat->new);
	else if (rewrite_error(skb, c) < 0)
		return TC_ACT_SHOT;
	if (unlikely(f->policies) && protected(c, POLICY_OUT, 0, skb->mark)) {
		c->unanswered++;
		return TC_ACT_SHOT;
	}
	return look->is_error ? FWD_STACK : rewrite_frame(skb, c) < 0 ? TC_ACT_SHOT : FWD_STACK;
}
