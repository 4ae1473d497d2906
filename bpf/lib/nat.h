// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Translations, docs/design/0004-containers.md section 4. Each has two entries in the state table:
// one keyed by the tuple on the wire, one by the tuple that rules see. Each names the other by its
// place (side_partner), so either tuple leads to the other.
//
// The originator of a translation is a pod behind the host's address (META_SOURCE), or the client
// of a published port.
#pragma once

#include "evaluate.h"
#include "service.h"

// how exact the time of the last packet is: lines that both directions read are rarely written
#define NAT_TOUCH 1000000000LL

// ports_of returns what a translation calls ports: those of struct key.
static __always_inline __u32 ports_of(const struct packet *p)
{
	if (!is_icmp(p))
		return p->ports;
	return icmp_ports(p->version, p->icmp_type, p->seq);
}

static __always_inline void tuple_of(const struct packet *p, struct tuple *t)
{
	t->src_hi = p->src_hi;
	t->src_lo = p->src_lo;
	t->dst_hi = p->dst_hi;
	t->dst_lo = p->dst_lo;
	t->ports = ports_of(p);
}

// apply_tuple turns the fields of the packet, not the frame, into those of a tuple.
static __always_inline void apply_tuple(struct packet *p, struct nat *nat, struct tuple *t)
{
	if (!nat->translated)
		tuple_of(p, &nat->orig);
	nat->translated = 1;
	p->src_hi = t->src_hi;
	p->src_lo = t->src_lo;
	p->dst_hi = t->dst_hi;
	p->dst_lo = t->dst_lo;
	if (p->frag & FRAG_LATER)
		return;
	if (!is_icmp(p))
		p->ports = t->ports;
	else if (ports_of(p))
		p->seq = icmp_id(p->version, p->icmp_type, t->ports) << 16 | (p->seq & 0xffff);
}

// set_key sets the key of the packet to that of a tuple.
static __always_inline void set_key(const struct packet *p, struct lookup *look,
				    const struct tuple *t)
{
	canonical(p, look, t->src_hi, t->src_lo, t->dst_hi, t->dst_lo, t->ports, p->proto);
}

// nat_find looks for the translation of look->key and sets look->place.
__noinline int nat_find(struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct lookup *look = &c->look;
	key_hash(look, cf, NAT_FLOW);
	return find(c, look, cf);
}

// nat_follow looks look->key up among the translations keyed by one kind of tuple (META_WIRE or 0),
// and sets nat->new to the other tuple. It changes nothing: whether the packet passes is not known
// yet.
__noinline int nat_follow(struct cpu *c, __u32 wire)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	nat->inner = NONE;
	if (look->keyed != KEY_SET || !nat_find(c))
		return 0;
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = look->from ? high : low;
	__u32 flags = low->flags;
	// The originator's packets are translated from the wire for a published port, and to the
	// wire for a source.
	__u32 wanted = (wire != 0) ^ ((flags & META_SOURCE) != 0),
	      by_originator = (d->flags & META_MADE) != 0;
	if ((flags & META_WIRE) != wire || wanted != by_originator)
		return 0;
	__u32 partner = partner_of(low), from = look->from ^ (flags & META_CROSS ? 1 : 0),
	      way = partner & (WAYS - 1);
	struct tag_line *ot = tags_at(partner / WAYS);
	if (!ot)
		return 0;
	__u64 tag = READ_ONCE(ot->tag[way]);
	struct set *o = set_at(partner / WAYS + depends_on(tag));
	if (!o)
		return 0;
	struct side *olow = low_side(o, partner), *ohigh = high_side(o, partner);
	int answers = is_partner(tag, olow, low, place);
	// the translation is being made, or adopted
	if (unlikely(!answers && (p->now - low->created < NAT_YOUNG || partner == ~0U)))
		return 0;
	if (unlikely(!answers || expired(cf, wire ? olow : low, wire ? ohigh : high,
					 look->key.proto, p->now))) {
		remove_state(c, place, look->tag, GONE_EXPIRED);
		return 0;
	}
	__u32 ports = tag >> 32;
	struct tuple *t = &nat->new;
	t->src_hi = from ? o->addr[way].high_hi : o->addr[way].low_hi;
	t->src_lo = from ? o->addr[way].high_lo : o->addr[way].low_lo;
	t->dst_hi = from ? o->addr[way].low_hi : o->addr[way].high_hi;
	t->dst_lo = from ? o->addr[way].low_lo : o->addr[way].high_lo;
	t->ports = from ? ports << 16 | ports >> 16 : ports;
	nat->partner = partner;
	nat->inner = some(wire ? partner : place);
	nat->nat_rule = flags & META_NAT_RULE ? ANY_INSTANCE : 0;
	nat->from = wire ? from : look->from;
	return 1;
}

// nat_step advances a flow of which no rule keeps a state, by the same state machine: the inner
// entry is its state. A segment with wrong sequence numbers ends nothing.
static __always_inline void nat_step(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				     const struct nat *nat, struct side *low, struct side *high)
{
	struct side *d = nat->from ? high : low, *o = nat->from ? low : high;

	if (p->proto != PROTO_TCP) {
		int proves = o->flags & SIDE_SEEN && d->flags & META_MADE;
		set_flags(d, proves ? SIDE_SEEN | SIDE_PROVED : SIDE_SEEN);
		return;
	}
	if (p->tcp_flags & TH_SYN)
		read_scale_or_chunk(skb, c);
	if (step_tcp(d, o, p) != RES_RECYCLE)
		return;
	// all flags but those that the old connection has set
	__u32 kept = ~(__u32)0xffff & ~(__u32)META_LOOSE;
	__sync_fetch_and_and(&d->flags, kept);
	__sync_fetch_and_and(&o->flags, kept);
	begin(d, p);
}

enum { PHASE_TRIES = 8 };

// record_phase records the phase of the state at a place in the translation at `inner`, and returns
// it. Another CPU may record the phase after its own packet at this moment. The later of two
// packets has to decide: otherwise a connection that has ended could count as established until its
// lifetime is over, and be kept from eviction. So the word is read before the phase, and a CPU
// that finds it changed tries again. Each loss means that another CPU has recorded something.
__noinline int record_phase(__u32 inner, __u32 place, __u8 proto)
{
	struct set *s = set_at(inner / WAYS);
	int phase = PHASE_OPENING;

	for (int i = 0; i < PHASE_TRIES && s; i++) {
		__u32 *at = &side_nat_word(high_side(s, inner)), word = READ_ONCE(*at);
		struct set *of = set_at(place / WAYS + depends_on(word));
		if (!of)
			break;
		phase = phase_of(low_side(of, place), high_side(of, place), proto);
		if (phase == (word & NAT_PHASE) ||
		    __sync_val_compare_and_swap(at, word, with_phase(word, phase)) == word)
			break;
	}
	return phase;
}

// nat_phase records the phase of the flow in its translation: that of its state, or where rules
// keep none the phase that nat_step computes.
__noinline int nat_phase(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	const struct nat *nat = &c->nat;
	__u32 inner = number(nat->inner), place = look->first_place;
	struct set *s = set_at(inner / WAYS),
		   *of = exists(look->first_flow) ? set_at(place / WAYS) : NULL;
	if (!s)
		return 0;
	struct side *low = low_side(s, inner), *high = high_side(s, inner);
	if (unlikely(exists(backend_in(high))) && p->proto == PROTO_TCP &&
	    !((nat->from ? high : low)->flags & META_MADE))
		count_answer(p, high);
	if (!of)
		nat_step(skb, c, p, nat, low, high);
	int phase = record_phase(inner, of ? place : inner, p->proto);
	WRITE_ONCE(low->last, p->now);
	// At ingress the packet may yet be refused at egress, as may those that came before it,
	// unless both ends have sent.
	if ((p->dir == DIR_OUT || phase == PHASE_ESTABLISHED) &&
	    unlikely(READ_ONCE(low->flags) & META_FRESH))
		__sync_fetch_and_and(&low->flags, ~META_FRESH);
	return 0;
}

// new_state: the packet made its own state.
static __always_inline int new_state(const struct lookup *look)
{
	return exists(look->first_flow) && look->first_new;
}

// nat_touch keeps the translation of a packet that has passed alive, as its flow's state was kept
// alive. A packet that left the state untouched leaves the translation untouched.
static __always_inline void nat_touch(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				      const struct lookup *look, const struct nat *nat)
{
	__u32 inner = number(nat->inner);
	struct set *s = exists(nat->inner) ? set_at(inner / WAYS) : NULL;

	if (!s || look->is_error || (exists(look->first_flow) && look->first_look != LOOK_HIT))
		return;
	struct side *low = low_side(s, inner), *high = high_side(s, inner);
	__u32 phase = phase_in(high), tcp = p->proto == PROTO_TCP;
	if (unlikely(phase != PHASE_ESTABLISHED || new_state(look) ||
		     (tcp &&
		      (!exists(look->first_flow) || p->tcp_flags & (TH_SYN | TH_FIN | TH_RST)))))
		nat_phase(skb, c);
	else if (p->now - READ_ONCE(low->last) > NAT_TOUCH)
		WRITE_ONCE(low->last, p->now);
}

// nat_find_inner finds the translation whose inner tuple is the packet's, in either direction.
__noinline int nat_find_inner(struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	nat->inner = NONE;
	if (p->frag & FRAG_LATER)
		return 0;
	canonical(p, look, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, ports_of(p), p->proto);
	if (!nat_find(c))
		return 0;
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	if (!s || low_side(s, place)->flags & META_WIRE)
		return 0;
	nat->inner = some(place);
	nat->from = look->from;
	return 1;
}
