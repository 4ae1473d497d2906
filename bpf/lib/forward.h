// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Forwarding, docs/design/0004-containers.md section 3: a packet is evaluated at ingress and at
// egress, translated, and redirected to the pod or the NIC. A packet that cannot be redirected goes
// up the stack, which routes it, fragments it or answers with an error. The hooks there do what
// remains.
#pragma once

#include "cookie.h"
#include "drop.h"
#include "redirect.h"
#include "nat_rule.h"

// begin_packet clears what an earlier packet has left, except for what fast_established may have
// set of this one: look.missed.
static __always_inline void begin_packet(struct cpu *c, struct config *cf)
{
	struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	struct cookie *cookie = &c->cookie;
	walk->random = cf->random ? bpf_get_prandom_u32() : 0;
	walk->tags = 0;
	p->second_evaluation = 0;
	cookie->offer = OFFER_NONE;
	c->nat.make = MAKE_NONE;
	c->nat.nat_rule = 0;
	c->nat.instance = 0;
	c->nat.translated = 0;
	c->fwd.hop_error = HOP_FINE;
	walk->awaits_nat = AWAIT_NOTHING;
	walk->resume = 0;
}

// set_endpoint sets which pod, if any, is behind an interface.
static __always_inline void set_endpoint(struct pkt_endpoint *pod, __u32 ifindex)
{
	struct endpoint *e = endpoint_at(ifindex);

	pod->is_pod = e != NULL;
	if (e) {
		pod->place = e->place;
		pod->limited = e->limited;
	}
}

// translate_leaving translates a packet that leaves by an interface (0: for a pod) behind the
// stack, which has asked the IPsec policies about the addresses before. It returns 0 or the reason
// to drop the packet.
static __always_inline int translate_leaving(struct __sk_buff *skb, struct cpu *c, struct packet *p,
					     const struct lookup *look, struct nat *nat,
					     struct forwarding *f, __u32 ifindex)
{
	int r = nat_outbound(skb, c, p, look, nat, ifindex);

	if (r == NAT_FAILED)
		return REASON_NAT_PORTS;
	if (unlikely(f->policies) && r == NAT_DONE && ifindex &&
	    protected(c, POLICY_OUT, 0, skb->mark))
		return REASON_IPSEC;
	return 0;
}

// needs_no_stack: the packet has nothing that only the stack handles.
static __always_inline int needs_no_stack(struct __sk_buff *skb, const struct packet *p)
{
	return p->ttl > 1 && p->l3 == 14 && !p->ip_options &&
	       !(p->ext_hdrs & ~(EXT_FRAGMENT | EXT_DESTINATION)) && skb->pkt_type == HOST &&
	       !skb->vlan_present;
}

static __always_inline long store_macs(struct __sk_buff *skb, struct forward *fwd)
{
	return bpf_skb_store_bytes(skb, 0, fwd->macs, 12, 0);
}

// address_frame decrements the hop limit and, with `macs`, writes the MAC addresses for the next
// hop.
static __always_inline long address_frame(struct __sk_buff *skb, const struct packet *p,
					  struct forward *fwd, int macs)
{
	if (p->version == 6)
		return age6(skb, p) < 0 || (macs && store_macs(skb, fwd) < 0) ? -1 : 0;
	if ((__u8 *)(long)skb->data + 34 > (__u8 *)(long)skb->data_end &&
	    bpf_skb_pull_data(skb, 34) < 0)
		return -1;
	__u8 *b = (__u8 *)(long)skb->data;
	if (b + 34 > (__u8 *)(long)skb->data_end)
		return -1;
	age4(b + 14);
	if (macs)
		__builtin_memcpy(b, fwd->macs, 12);
	return 0;
}

// to_pod hands a packet that passed to a pod.
static __always_inline int to_pod(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				  struct forward *fwd, struct config *cf, struct forwarding *f)
{
	if (rewrite_frame(skb, c) < 0 || address_frame(skb, p, fwd, 1) < 0)
		return TC_ACT_SHOT;
	return enter_pod(skb, cf, f, p->xmit, fwd->endpoint[DIR_OUT].is_pod);
}

// to_nic hands a packet that passed to the NIC that its route leads to.
static __always_inline int to_nic(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				  struct forward *fwd, struct config *cf)
{
	if (rewrite_frame(skb, c) < 0 || address_frame(skb, p, fwd, fwd->macs_known) < 0)
		return TC_ACT_SHOT;
	skb->mark = cf->local_mark & ~MARK_KIND;
	if (likely(fwd->macs_known))
		return bpf_redirect(p->xmit, 0);
	fwd->next.nh_family = fwd->route.family;
	__builtin_memcpy(fwd->next.nh, fwd->route.dst, 16);
	return bpf_redirect_neigh(p->xmit, &fwd->next, sizeof(fwd->next), 0);
}

// back_to_pod hands a pod's packet to a pod. Not in to_host, whose stack it would enlarge.
__noinline int back_to_pod(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	const struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;

	if (address_frame(skb, p, fwd, 1) < 0)
		return TC_ACT_SHOT;
	return enter_pod(skb, cf, f, p->xmit, fwd->endpoint[DIR_OUT].is_pod);
}

// to_host gives a packet of a pod to the host itself. If the host is a client of its own port, the
// answer comes in through the loopback. There the kernel checks neither its source nor, for IPv4,
// rp_filter, and rules of netfilter usually let everything pass. A pod's packet to its own
// published port comes back to the pod.
static __always_inline int to_host(struct __sk_buff *skb, struct cpu *c, struct config *cf)
{
	struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct forward *fwd = &c->fwd;
	p->dir = DIR_OUT; // otherwise later fragments would take this for an ingress translation
	int r = nat_outbound(skb, c, p, look, nat, 0);
	p->dir = DIR_IN;
	if (r == NAT_FAILED)
		return drop(skb, c, cf, REASON_NAT_PORTS);
	// Only what a translation gave another source goes into the loopback: not fragments whose
	// first stayed as it is, nor an error about the packets of another pod.
	if (unlikely(r == NAT_DONE && (p->frag & (FRAG_FIRST | FRAG_LATER) || look->is_error)) &&
	    pod_at(p->src_hi, p->src_lo))
		r = NAT_NONE;
	struct endpoint *to =
		r == NAT_DONE && needs_no_stack(skb, p) ? pod_at(p->dst_hi, p->dst_lo) : NULL;
	if (to) {
		__builtin_memcpy(fwd->macs, to->mac, 6);
		__builtin_memcpy(fwd->macs + 6, to->host_mac, 6);
		p->xmit = to->ifindex;
		count_pod(to->place, DIR_IN, skb->len);
	}
	if (rewrite_frame(skb, c) < 0)
		return TC_ACT_SHOT;
	if (to)
		return back_to_pod(skb, c);
	if (r == NAT_NONE)
		return FWD_STACK;
	__builtin_memset(fwd->macs, 0, sizeof(fwd->macs)); // the loopback's own
	if (store_macs(skb, fwd) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(LOOPBACK, BPF_F_INGRESS);
}

// resolve_endpoints sets the endpoints of the packet from the forwarding cache. It returns the
// reason to drop the packet for its addresses, or 0.
__noinline int resolve_endpoints(struct __sk_buff *skb, struct cpu *c)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return REASON_SPOOF;
	const struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;
	struct pkt_endpoint *from = &fwd->endpoint[DIR_OUT], *to = &fwd->endpoint[DIR_IN];
	__u8 wrong;
	struct fwd_entry *w = fwd_get(skb, c, p, fwd, f, &wrong);
	if (!w)
		return REASON_SPOOF;
	from->is_pod = w->from_pod;
	from->place = w->origin.place;
	from->limited = w->origin.limited;
	to->is_pod = w->to_pod;
	if (!w->to_pod)
		return wrong;
	to->place = w->target.place;
	to->limited = w->target.limited;
	to->mtu = w->mtu;
	to->ifindex = w->ifindex;
	__builtin_memcpy(fwd->macs, w->macs, sizeof(fwd->macs));
	return wrong;
}

// resolve_translated resolves the addresses after a translation. The sender stays the same,
// although a pod that is a client of its own port now has the host's address.
static __always_inline int resolve_translated(struct __sk_buff *skb, struct cpu *c,
					      struct packet *p, const struct nat *nat)
{
	__u64 hi = p->src_hi, lo = p->src_lo;

	p->src_hi = nat->orig.src_hi;
	p->src_lo = nat->orig.src_lo;
	__u8 wrong = resolve_endpoints(skb, c);
	p->src_hi = hi;
	p->src_lo = lo;
	return wrong;
}

// drop_own_source refuses a packet that came in with an address of the host as its source, on a
// host without pods. The stack will not take it, so it makes no state and counts for no source.
// FWD_CONTINUE: it is not such a packet.
__noinline int drop_own_source(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	const struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;
	struct scratch *scratch = &c->scratch;

	if (p->kind != PARSED_IP || p->reason || !has_host_source(skb, p, fwd, scratch))
		return FWD_CONTINUE;
	return drop(skb, c, cf, REASON_SPOOF);
}

// before_ingress checks who sent an incoming packet, and translates what comes from outside.
// FWD_CONTINUE: it has to be evaluated.
__noinline int before_ingress(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct forward *fwd = &c->fwd;

	read_frame(skb, c, l2);
	look->first_flow = NONE;
	nat->translated = 0;
	look->decided_by_state = 0;
	nat->inner = NONE;
	fwd->endpoint[DIR_IN].is_pod = 0;
	if (p->kind != PARSED_IP || p->reason) {
		set_endpoint(&fwd->endpoint[DIR_OUT], skb->ifindex);
		if (p->kind != PARSED_ARP || own_arp(skb, c))
			return FWD_CONTINUE;
		refuse(p, 0); // no field of an earlier packet is reported
		count_pod_drop(fwd->endpoint[DIR_OUT].place, DIR_OUT);
		return drop(skb, c, cf, REASON_SPOOF);
	}
	__u8 wrong = resolve_endpoints(skb, c);
	__u32 from = fwd->endpoint[DIR_OUT].is_pod;
	if (unlikely(wrong)) {
		if (from)
			count_pod_drop(fwd->endpoint[DIR_OUT].place, DIR_OUT);
		return drop(skb, c, cf, wrong);
	}
	if (!fwd->endpoint[DIR_IN].is_pod &&
	    (from ? f->published && own_address(c) : f->published | f->masquerade)) {
		int r = translate_in(skb, c);
		if (r == NAT_FAILED)
			return drop(skb, c, cf, REASON_NAT_PORTS);
		if (unlikely(r == NAT_AWAITS_RULE))
			c->walk.awaits_nat = AWAIT_ERROR;
		if (r == NAT_DONE) {
			wrong = resolve_translated(skb, c, p, nat);
			// The rules would decide about a pod that is gone, and the packet would
			// stay in the host. Only the stack knows where others than pods are.
			if (!wrong && nat->translated && !fwd->endpoint[DIR_IN].is_pod &&
			    (from || !nat_for_others(f)))
				wrong = REASON_NO_BACKEND;
		}
		if (unlikely(wrong))
			return drop(skb, c, cf, wrong);
		// the verdict about the first fragment would be recorded for the others
		if (unlikely(nat->make == MAKE_REFUSAL && p->frag & FRAG_FIRST))
			return drop(skb, c, cf, REASON_NO_BACKEND);
	}
	if (unlikely(nat->nat_rule) && nat->translated && !fwd->endpoint[DIR_IN].is_pod)
		await_nat_rule(p, nat, &c->walk);
	return FWD_CONTINUE;
}

// checkpoint follows the evaluation of a packet from a pod (DIR_OUT) or to one (DIR_IN), and takes
// a packet that passed from the pod's bucket. FWD_CONTINUE: the packet is not dropped. FWD_HOP: a
// rule with fwd has let it pass on its way out.
__noinline int checkpoint(struct __sk_buff *skb, struct cpu *c, __u32 l2, __u32 dir)
{
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	struct verdict *v = &c->verdict;
	struct nat *nat = &c->nat;
	struct forward *fwd = &c->fwd;
	dir &= 1;
	struct pkt_endpoint *pod = &fwd->endpoint[dir];
	if (unlikely(nat->make == MAKE_REFUSAL && v->pass)) {
		v->pass = 0;
		v->reason = REASON_NO_BACKEND; // with the rule that let it pass
	}
	int passed = conclude(skb, c, cf, l2);
	int next = unlikely(c->walk.next_hop) && dir == DIR_IN ? FWD_HOP : FWD_CONTINUE;
	if (likely(passed) && !pod->is_pod)
		return next;
	int slow =
		passed && over_rate(pod->place, pod->limited, dir, in_segments(p, skb->len, p->l3));
	if (likely(passed && !slow)) {
		count_pod(pod->place, dir, skb->len);
		return next;
	}
	if (pod->is_pod)
		count_pod_drop(pod->place, dir);
	return slow ? drop(skb, c, cf, REASON_RATE) : refuse_frame(skb, c, p, v, nat);
}

// from_itself: a pod's packet to its own published port has the host's address as its source now.
// The stack would not take such a packet from a pod, and would send its errors to the host.
static __always_inline int from_itself(const struct packet *p, const struct forward *fwd,
				       const struct nat *nat)
{
	return fwd->endpoint[DIR_OUT].is_pod && nat->translated &&
	       (p->src_lo != nat->orig.src_lo || p->src_hi != nat->orig.src_hi);
}

// after_ingress follows the first evaluation of an incoming packet, and finds out where it goes.
// FWD_CONTINUE: it has to be evaluated at egress. FWD_EGRESS: the same state lets it pass there,
// too.
__noinline int after_ingress(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct verdict *v = &c->verdict;
	struct nat *nat = &c->nat;
	struct forward *fwd = &c->fwd;
	struct pkt_endpoint *to = &fwd->endpoint[DIR_IN];

	int r = checkpoint(skb, c, l2, DIR_OUT);
	if (r != FWD_CONTINUE)
		return r;
	if (p->kind != PARSED_IP || p->reason)
		return FWD_STACK;
	// A translation decides where the packet goes.
	if (unlikely(c->walk.next_hop) && !nat->translated && !nat->make) {
		r = resolve_next_hop(skb, c, l2);
		if (r != FWD_CONTINUE)
			return r;
		if (c->walk.next_hop)
			return send_hop(skb, c, l2);
	}
	__u32 routed = nat_for_others(f) && !to->is_pod && !fwd->endpoint[DIR_OUT].is_pod;
	if (to->is_pod || routed) {
		if (routed || !needs_no_stack(skb, p) || !fits_mtu(skb, p, to->mtu) ||
		    !may_redirect(c)) {
			// The egress hook evaluates it again: if that refuses it, stack_egress ends
			// a fresh translation. An answer to the client, whose state is new, ends
			// nothing.
			int why = nat_inbound(skb, c, p, look, nat, f, META_FRESH,
					      routed ? FORGET_FROM_CLIENT : FORGET_ANY);
			if (why)
				return drop(skb, c, cf, why);
			if (p->ttl <= 1 && from_itself(p, fwd, nat))
				return fail_hop(skb, c, cf, REASON_HOP_TTL, HOP_EXPIRED);
			return rewrite_frame(skb, c) < 0 ? TC_ACT_SHOT : FWD_STACK;
		}
		p->xmit = to->ifindex;
	} else if (!fwd->endpoint[DIR_OUT].is_pod) {
		return FWD_STACK;
	} else if (!needs_no_stack(skb, p) || !may_redirect(c) || !find_nic(skb, c, p, fwd)) {
		p->xmit = 0;
		return f->published && own_address(c) ? to_host(skb, c, cf) : FWD_STACK;
	}
	p->dir = DIR_OUT;
	p->second_evaluation = 1;
	if (!look->decided_by_state ||
	    p->frag & FRAG_FIRST) // its verdict is recorded for the other fragments
		return FWD_CONTINUE;
	count_rule(v->id, p->len, p->now);
	return FWD_EGRESS;
}

// after_egress follows the second evaluation and its checkpoint: it sends the packet.
__noinline int after_egress(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct forward *fwd = &c->fwd;
	__u32 pod = fwd->endpoint[DIR_IN].is_pod, flags = originated(look), out = pod ? 0 : p->xmit;
	if (unlikely(c->walk.next_hop)) { // before the packet is translated: an answer quotes it
		int r = resolve_next_hop(skb, c, 14);
		if (r != FWD_CONTINUE)
			return r;
		if (c->walk.next_hop)
			out = fwd->hop_ifindex;
	}
	if (flags && !(flags & META_REDIRECT))
		set_redirect(look);
	int why = pod && f->published | f->masquerade ?
			  nat_inbound(skb, c, p, look, nat, f, 0, FORGET_ANY) :
			  0;
	if (unlikely(why))
		return drop(skb, c, cf, why);
	// What comes from outside and goes to a pod is already translated.
	if (fwd->endpoint[DIR_OUT].is_pod && (f->published | (pod ? 0 : f->masquerade)))
		why = translate_leaving(skb, c, p, look, nat, f, out);
	if (unlikely(why))
		return drop(skb, c, cf, why);
	if (unlikely(c->walk.next_hop))
		return rewrite_frame(skb, c) < 0 ? TC_ACT_SHOT : send_hop(skb, c, 14);
	return pod ? to_pod(skb, c, p, fwd, cf, f) : to_nic(skb, c, p, fwd, cf);
}

// forward_in forwards an incoming packet that the fast path has left. p->recv, p->now and
// walk->random are set.
static __always_inline int forward_in(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				      const struct walk *walk, const struct cookie *cookie,
				      const struct nat *nat, __u32 l2)
{
	int r = before_ingress(skb, c, l2);

	if (r != FWD_CONTINUE)
		return r;
	if (likely(!nat->nat_rule)) // what is redirected is not for the host
		before_evaluate(skb, c, p);
	evaluate(skb, c);
	if (unlikely(walk->awaits_nat) && after_nat_rule(skb, c))
		evaluate(skb, c);
	after_evaluate(skb, c, cookie);
	r = after_ingress(skb, c, l2);
	if (r == FWD_CONTINUE)
		evaluate(skb, c);
	else if (r != FWD_EGRESS)
		return unlikely(r == FWD_ANSWER) ? answer_hop(skb, c) : r;
	// Not in after_egress, whose stack would add to that of an answer.
	r = checkpoint(skb, c, l2, DIR_IN);
	if (likely(r == FWD_CONTINUE) || r == FWD_HOP)
		r = after_egress(skb, c);
	return unlikely(r == FWD_ANSWER) ? answer_hop(skb, c) : r;
}
