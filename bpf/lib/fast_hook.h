// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path of a hook, which has two programs. The first one takes packets of established
// flows, and calls no function for them. All others continue in the second program, by a tail call:
// it has a stack of its own.
#pragma once

#include "fast_decide.h"
#include "fast_forward.h"
#include "fast_host.h"

// is_own_mark: Weir has put the packet here itself, or has evaluated it already.
static __always_inline int is_own_mark(const struct config *cf, __u32 mark, __u32 l2, __u8 dir)
{
	return mark && ((mark | 1) == cf->local_mark ||
			(dir == DIR_IN && l2 == 14 && mark == (cf->local_mark ^ MARK_NETKIT)));
}

// is_tunnel: the interface is the tunnel to other nodes. A packet that leaves by it has no recv, as
// in the tunnel in user space, which cannot know it: the same rules decide the same in both.
static __always_inline int is_tunnel(__u32 ifindex)
{
	struct iface *f = bpf_map_lookup_elem(&ifaces, &ifindex);
	return f && f->dhcp & IFACE_TUNNEL;
}

// begin_hook sets in c what the hook knows of a packet.
static __always_inline void begin_hook(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				       __u32 l2, __u8 dir)
{
	struct packet *p = &c->packet;

	p->dir = dir;
	p->recv = dir == DIR_IN ? skb->ifindex : skb->ingress_ifindex;
	p->xmit = dir == DIR_IN ? 0 : skb->ifindex;
	if (!l2 && dir == DIR_OUT && is_tunnel(p->xmit))
		p->recv = 0;
	p->now = coarse_now(cf);
	c->walk.tags = 0;
	c->look.missed = NONE;
	c->known = FAST_NOT;
	c->forwards = 0;
}

// fast_local evaluates a packet that is not forwarded.
static __always_inline int fast_local(struct cpu *c, struct config *cf, const struct fast_packet *e,
				      __u8 dir)
{
	int r = fast_established(c, cf, e, 0, 1, NULL);

	if (unlikely(r == FAST_STATELESS) && fast_stateless(c)) {
		count_verdict(c);
		return c->verdict.pass ? TC_ACT_UNSPEC : TC_ACT_SHOT;
	}
	if (likely(r == FAST_DONE)) {
		count_passed(c, dir, e->len);
		return TC_ACT_UNSPEC;
	}
	c->known = r;
	return FWD_CONTINUE;
}

// fast_forward evaluates a packet that may be forwarded unchanged, and forwards it.
static __always_inline int fast_forward(struct __sk_buff *skb, struct cpu *c, struct config *cf,
					struct forwarding *f, const struct fast_packet *e,
					struct fwd_entry *w)
{
	int r = fast_established(c, cf, e, META_REDIRECT, 2, NULL);

	if (likely(r == FAST_DONE)) {
		count_passed(c, DIR_IN, e->len);
		return fast_leave(skb, c, cf, f, w, e->len, e->version == 4);
	}
	c->known = r;
	c->forwards = 1;
	return FWD_CONTINUE;
}

// fast_hook evaluates a packet at an interface and forwards it, if its flow is established. It
// returns what the program has to return, or FWD_CONTINUE. Then the packet is as it was. What
// slow_hook needs is in c, except for a packet with a mark of our own.
static __always_inline int fast_hook(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				     __u32 l2, __u8 dir)
{
	struct forwarding *f = forwarding_settings();
	struct fast_packet e;

	if (unlikely(is_own_mark(cf, skb->mark, l2, dir)))
		return FWD_CONTINUE;
	if (!f)
		return TC_ACT_SHOT;
	begin_hook(skb, c, cf, l2, dir);
	if (unlikely(event_wanted(cf, EVENT_PACKET)) || !fast_decode(&e, skb, l2))
		return FWD_CONTINUE;
	if (f->pods | f->published | f->sources) {
		struct fwd_entry *w = NULL;
		int checked = 0;
		if (dir == DIR_IN && l2 == 14 && f->pods | f->published)
			w = fast_route(skb, c, cf, f, &e, &checked);
		if (w)
			return fast_forward(skb, c, cf, f, &e, w);
		if (!is_plain(skb, c, f, &e, dir, checked))
			return FWD_CONTINUE;
	} else if (dir == DIR_IN && is_own_source(cf, e.version, e.src_hi, e.src_lo)) {
		return FWD_CONTINUE; // drop_own_source decides
	}
	return fast_local(c, cf, &e, dir);
}

// leave_by_cache sends a packet on that fast_rest has evaluated at ingress.
__noinline int leave_by_cache(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	struct fwd_entry *w = c ? fwd_at(c->fwd.index) : NULL;
	if (!cf || !f || !w)
		return TC_ACT_SHOT;
	if (unlikely(!c->verdict.pass)) {
		if (w->from_pod)
			count_pod_drop(w->origin.place, DIR_OUT);
		return TC_ACT_SHOT;
	}
	struct packet *p = &c->packet;
	p->dir = DIR_OUT;
	count_rule(c->verdict.id, p->len, p->now);
	return fast_leave(skb, c, cf, f, w, p->len, p->version == 4);
}

// fast_rest evaluates a packet about which fast_hook knows something, and forwards it. FWD_CONTINUE
// leaves it to the slow path.
static __always_inline int fast_rest(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				     struct forwarding *f, __u32 l2)
{
	__u32 known = c->known, forwards = c->forwards;

	// Not new flows that may go to where a published port leads: they end a translation of it
	// with the same ends. Nor forwarded ones that netfilter may translate: they go up the
	// stack.
	if (known == FAST_NEW &&
	    (forwards ? f->published | f->netfilter : f->published && nat_for_others(f)))
		known = FAST_NOT;
	if (!fast_decide(skb, c, cf, l2, known, forwards ? META_REDIRECT : 0))
		return FWD_CONTINUE;
	finish(c, cf);
	if (forwards)
		return leave_by_cache(skb, c);
	return c->verdict.pass ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}
