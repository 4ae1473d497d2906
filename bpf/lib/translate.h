// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which packets are translated, at ingress and at egress.
#pragma once

#include "nat_clash.h"
#include "prototypes.h"
#include "rewrite.h"

enum { FRAG_FOLLOW, FRAG_NOTE, FRAG_NOTE_IN, FRAG_FORGET };

// nat_fragment translates the current packet, a later fragment, as the first was (FRAG_FOLLOW). Or
// it records the translation of a first fragment that has passed for the later ones (FRAG_NOTE;
// FRAG_NOTE_IN: that at ingress), or forgets that of an earlier datagram with the same
// identification (FRAG_FORGET). nat->before is the tuple before the translation.
__noinline int nat_fragment(struct cpu *c, __u32 what)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	struct nat_frag_key k = {};
	struct tuple *t = &nat->before;
	k.src.hi = t->src_hi;
	k.src.lo = t->src_lo;
	k.dst.hi = t->dst_hi;
	k.dst.lo = t->dst_lo;
	k.id = p->ip_id;
	k.recv = p->recv;
	k.proto = p->version == 4 ? p->proto : 0; // as in frag_key
	k.dir = what == FRAG_NOTE_IN ? DIR_IN : p->dir;
	if (what == FRAG_FORGET)
		return bpf_map_delete_elem(&nat_frags, &k) == 0;
	if (what == FRAG_NOTE || what == FRAG_NOTE_IN) {
		struct nat_frag v = {};
		v.src.hi = p->src_hi;
		v.src.lo = p->src_lo;
		v.dst.hi = p->dst_hi;
		v.dst.lo = p->dst_lo;
		v.until = p->now + cf->life_frag;
		v.nat_rule = nat->nat_rule & ~SEEN_TRANSLATED;
		bpf_map_update_elem(&nat_frags, &k, &v, BPF_ANY);
		return 1;
	}
	struct nat_frag *v = bpf_map_lookup_elem(&nat_frags, &k);
	if (!v || p->now > v->until)
		return 0;
	nat->new.src_hi = v->src.hi;
	nat->new.src_lo = v->src.lo;
	nat->new.dst_hi = v->dst.hi;
	nat->new.dst_lo = v->dst.lo;
	nat->new.ports = 0;
	nat->nat_rule = v->nat_rule;
	apply_tuple(p, nat, &nat->new);
	return 1;
}

// for_host: the packet, whose key is in look->key, belongs to a connection of the host itself,
// which may have taken the number of a published port for its own end. Of a datagram to a socket
// that is not connected, a state says so: the other end did not begin the flow.
__noinline int for_host(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;

	if (p->proto == PROTO_TCP)
		return !bare_syn(p->tcp_flags) && tcp_socket(skb, c, 0);
	if (p->proto == PROTO_UDP && udp_socket(skb, c, 0))
		return 1;
	struct maybe flow = current_flow(READ_ONCE(cf->current));
	key_hash(look, cf, exists(flow) ? number(flow) : 0);
	if (!find(c, look, cf))
		return 0;
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	return s && !reclaimable(c, place) &&
	       !((look->from ? high_side(s, place) : low_side(s, place))->flags & META_MADE);
}

enum { NAT_NONE, NAT_DONE, NAT_FAILED, NAT_MASQUERADE, NAT_AWAITS_RULE };

// host_source gives a packet the host's own source: one of the host to a loopback address, or of a
// pod to its own published port. It could not be answered otherwise.
static __always_inline int host_source(const struct packet *p, struct nat *nat,
				       struct forwarding *f)
{
	struct address *a = p->version == 4 ? &f->four : &f->six;

	if (!(a->hi | a->lo))
		return 0;
	nat->new.src_hi = a->hi;
	nat->new.src_lo = a->lo;
	return 1;
}

// translate_in turns what came from outside back into what rules see. Only the fields change,
// except for an ICMP error, to which no answer is sent. NAT_AWAITS_RULE: it is an error about a
// flow that a rule with nat has translated.
__noinline int translate_in(struct __sk_buff *skb, struct cpu *c)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return NAT_FAILED;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;

	if (unlikely(p->frag & (FRAG_FIRST | FRAG_LATER)))
		tuple_of(p, &nat->before);
	if (p->frag & FRAG_LATER)
		return nat_fragment(c, FRAG_FOLLOW) ? NAT_DONE : NAT_NONE;
	if (p->frag & FRAG_FIRST)
		nat_fragment(c, FRAG_FORGET);
	make_key(skb, c, p, look);
	if (nat_follow(c, META_WIRE)) {
		if (unlikely(look->is_error && nat->nat_rule))
			return NAT_AWAITS_RULE;
		if (look->is_error)
			return rewrite_error(skb, c) < 0 ? NAT_FAILED : NAT_DONE;
		apply_tuple(p, nat, &nat->new);
	} else if (!look->is_error && find_published(c, c->fwd.endpoint[DIR_OUT].is_pod) &&
		   !for_host(skb, c)) {
		if (nat->new.dst_lo == p->src_lo && nat->new.dst_hi == p->src_hi &&
		    !host_source(p, nat, f))
			return NAT_FAILED;
		if (!choose_source(c))
			return NAT_FAILED;
		apply_tuple(p, nat, &nat->new);
		nat->make = MAKE_TRANSLATION;
	} else {
		nat->nat_rule = 0;
		return NAT_NONE;
	}
	return NAT_DONE;
}

// from_originator: the packet comes from the end that began the flow, by its state. Where rules
// keep none, by what the packet itself shows.
__noinline int from_originator(struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;

	if (exists(look->first_flow)) {
		__u32 place = look->first_place;
		struct set *s = set_at(place / WAYS);
		return s &&
		       (look->from ? high_side(s, place) : low_side(s, place))->flags & META_MADE;
	}
	if (p->proto == PROTO_TCP) // a rule with nat translates what it lets pass, as ipfw does
		return c->nat.instance || (p->tcp_flags & (TH_SYN | TH_ACK)) == TH_SYN;
	return !is_icmp(p) || is_icmp_query(p->version, p->icmp_type);
}

// find_masquerade returns how the source of a leaving packet is translated, NULL if it stays.
static __always_inline struct masked_source *find_masquerade(const struct packet *p,
							     struct forwarding *f)
{
	struct table_key k;

	if (!f->masquerade)
		return NULL;
	trie_key(&k, p->version, p->src_hi, p->src_lo);
	struct masked_source *source = bpf_map_lookup_elem(&masked_sources, &k);
	if (!source || !(source->flags & (MASK_SOURCE | MASK_BEHIND)))
		return NULL;
	__u32 except = source->flags & MASK_SOURCE ? MASK_EXCEPT : MASK_NEAR;
	trie_key(&k, p->version, p->dst_hi, p->dst_lo);
	struct masked_source *to = bpf_map_lookup_elem(&masked_sources, &k);
	return to && to->flags & except ? NULL : source;
}

// unregistered: the IPv4 source is one of RFC 1918, or with MASK_UNREG_CGN of RFC 6598.
static __always_inline int unregistered(__u32 a, __u32 flags)
{
	return a >> 24 == 10 || a >> 20 == 0xac1 || a >> 16 == 0xc0a8 ||
	       (flags & MASK_UNREG_CGN && a >> 22 == 0x191);
}

// nat_rule_key is the key of a source in the trie for an instance of nat: its number follows the
// family.
static __always_inline void nat_rule_key(struct table_key *k, const struct packet *p,
					 __u32 instance)
{
	trie_key(k, p->version, p->src_hi, p->src_lo);
	k->family[1] = instance;
	k->family[2] = instance >> 8;
}

// set_new_source sets the new source of a packet that leaves through a NIC.
static __always_inline int set_new_source(const struct packet *p, const struct lookup *look,
					  struct nat *nat, const struct masked_source *source,
					  __u32 ifindex)
{
	__u64 hi = source->to.hi, lo = source->to.lo;

	if (!(hi | lo)) {
		if (nat->instance)
			return NAT_FAILED;
		struct nic *nic = bpf_map_lookup_elem(&nics, &ifindex);
		if (!nic)
			return NAT_FAILED;
		hi = p->version == 4 ? nic->four.hi : nic->six.hi;
		lo = p->version == 4 ? nic->four.lo : nic->six.lo;
	}
	if (!(hi | lo))
		return NAT_FAILED;
	if (look->is_error) // about something that was never translated: as from the host itself
		return NAT_NONE;
	tuple_of(p, &nat->orig);
	nat->new = nat->orig;
	nat->new.src_hi = hi;
	nat->new.src_lo = lo;
	nat->keep_port = (source->flags & MASK_KEEP) != 0;
	return NAT_MASQUERADE;
}

// set_nat_rule_source does the same for a packet that a rule with nat has let pass.
static __always_inline int set_nat_rule_source(const struct packet *p, const struct lookup *look,
					       struct nat *nat, __u32 ifindex)
{
	struct table_key k;

	nat_rule_key(&k, p, nat->instance);
	struct masked_source *source = bpf_map_lookup_elem(&masked_sources, &k);
	if (!source)
		return NAT_FAILED;
	if (source->flags & MASK_UNREG && !unregistered(p->src_lo, source->flags))
		return NAT_NONE;
	return set_new_source(p, look, nat, source, ifindex);
}

// translate_out turns what rules see into what goes over the wire. ifindex is 0 for a packet to a
// pod or to the host itself. NAT_MASQUERADE: a translation has to be made first; nat_outbound does
// it.
__noinline int translate_out(struct __sk_buff *skb, struct cpu *c, __u32 ifindex)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return NAT_FAILED;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;

	if (unlikely(p->frag & (FRAG_FIRST | FRAG_LATER)))
		tuple_of(p, &nat->before);
	if (p->frag & FRAG_LATER) {
		if (nat_fragment(c, FRAG_FOLLOW))
			return NAT_DONE;
		return ifindex && (f->masquerade & MASQUERADE_NAT_RULE || find_masquerade(p, f)) ?
			       NAT_FAILED :
			       NAT_NONE;
	}
	make_key(skb, c, p, look);
	if (nat_follow(c, 0)) {
		if (look->is_error)
			return rewrite_error(skb, c) < 0 ? NAT_FAILED : NAT_DONE;
		apply_tuple(p, nat, &nat->new);
	} else {
		int r = NAT_NONE;
		if (ifindex && from_originator(c)) {
			struct masked_source *source = nat->instance ? NULL : find_masquerade(p, f);
			r = nat->instance ? set_nat_rule_source(p, look, nat, ifindex) :
			    source	  ? set_new_source(p, look, nat, source, ifindex) :
					    NAT_NONE;
		}
		if (r == NAT_FAILED || r == NAT_MASQUERADE || !(p->frag & FRAG_FIRST))
			return r;
	}
	// Also where nothing was translated: then the other fragments stay as they are, too.
	if (p->frag & FRAG_FIRST)
		nat_fragment(c, FRAG_NOTE);
	return NAT_DONE;
}

// nat_outbound translates a packet that has passed and leaves, see translate_out, and keeps its
// translation alive.
static __always_inline int nat_outbound(struct __sk_buff *skb, struct cpu *c, struct packet *p,
					const struct lookup *look, struct nat *nat, __u32 ifindex)
{
	int r = translate_out(skb, c, ifindex);

	if (r != NAT_MASQUERADE) {
		if (r == NAT_DONE)
			nat_touch(skb, c, p, look, nat);
		return r;
	}
	if (masquerade(skb, c))
		return NAT_FAILED;
	apply_tuple(p, nat, &nat->new);
	if (p->frag & FRAG_FIRST)
		nat_fragment(c, FRAG_NOTE);
	return NAT_DONE;
}

// kept_on_wire: the packet's states, if any, have its addresses on the wire. Such a state is not
// one of a flow through a published port.
static __always_inline int kept_on_wire(const struct nat *nat)
{
	return nat->nat_rule && !(nat->nat_rule & SEEN_TRANSLATED);
}

// may_publish: a translation may be made for this packet to a published port. A flow that reached
// the pod directly stays so: otherwise a host that guesses its ports could redirect its answers.
static __always_inline int may_publish(const struct packet *p, const struct lookup *look,
				       const struct nat *nat)
{
	__u32 place = look->first_place;
	struct set *s = set_at(place / WAYS);

	if (!exists(look->first_flow) || kept_on_wire(nat))
		return p->proto != PROTO_TCP || !(p->tcp_flags & (TH_RST | TH_FIN));
	return s && look->first_look == LOOK_HIT &&
	       (new_state(look) || low_side(s, place)->flags & META_PUBLISHED);
}

// mark_place marks a state, on both sides, as one of a flow through a published port.
static __always_inline void mark_place(struct set *s, __u32 place)
{
	set_flags(low_side(s, place), META_PUBLISHED);
	set_flags(high_side(s, place), META_PUBLISHED);
}

// mark_published marks the new state of a packet that follows a translation of a published port:
// the state that the flow had was evicted, and the translation was not.
__noinline int mark_published(struct cpu *c)
{
	if (!c)
		return 0;
	__u32 inner = number(c->nat.inner), place = c->look.first_place;
	struct set *s = set_at(place / WAYS),
		   *i = exists(c->nat.inner) ? set_at(inner / WAYS) : NULL;
	if (s && i && !(low_side(i, inner)->flags & META_SOURCE))
		mark_place(s, place);
	return 0;
}

// keep_inbound keeps the translation of a packet alive, or makes it: see nat_inbound.
static __always_inline int keep_inbound(struct __sk_buff *skb, struct cpu *c,
					const struct packet *p, const struct lookup *look,
					const struct nat *nat, struct forwarding *f, __u32 how,
					__u32 forget)
{
	__u32 place = look->first_place;

	if (nat->make) {
		// The state that the packet has found may be that of the flow's other first packet,
		// for which another CPU is making the translation.
		if (!may_publish(p, look, nat))
			return !kept_on_wire(nat) && await_first(c) ? 0 : REASON_NAT_PORTS;
		// Also when the translation cannot be made: the state stays, and the same packet,
		// sent again, has to find that it may have one.
		struct set *s = exists(look->first_flow) ? set_at(place / WAYS) : NULL;
		if (s && !kept_on_wire(nat))
			mark_place(s, place);
		return nat_create_published(skb, c, how) ? REASON_NAT_PORTS : 0;
	}
	if (nat->translated) {
		if (unlikely(new_state(look)) && !kept_on_wire(nat))
			mark_published(c);
		nat_touch(skb, c, p, look, nat);
	} else if (f->published && new_state(look)) {
		// a client that used a published port by this tuple before now uses the pod
		// itself
		nat_forget(c, forget);
	}
	return 0;
}

// nat_inbound follows a packet that has passed to a pod, or to where a forwarded port may lead. It
// keeps its translation alive, or makes it (`how` as for nat_create). It returns 0 or a reason.
// `forget` says which translation of its tuple a new flow ends.
static __always_inline int nat_inbound(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				       const struct lookup *look, const struct nat *nat,
				       struct forwarding *f, __u32 how, __u32 forget)
{
	int why = keep_inbound(skb, c, p, look, nat, f, how, forget);

	if (unlikely(p->frag & FRAG_FIRST) && !why && nat->translated)
		nat_fragment(c, FRAG_NOTE_IN);
	return why;
}
