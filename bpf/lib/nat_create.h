// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Creation of translations, and their early end.
#pragma once

#include "nat.h"

// nat_forget ends the translation of the packet's tuple, if there is one: with `fresh` only one
// that nothing has used.
__noinline int nat_forget(__u32 fresh)
{
	struct cpu *c = this_cpu();
	if (!c || !nat_find_inner(0))
		return 0;
	__u32 place = c->p.place;
	struct set *s = set_at(place / WAYS);
	if (!s || (fresh && !(low_side(s, place)->flags & META_FRESH)))
		return 0;
	return remove_state(place, c->p.tag, GONE_RECYCLED);
}

// nat_conflict: the tuple p->key has a translation already. One that is over, or whose other half
// is missing, is removed first; with `dead` any other is, because its flow is known to be another
// one.
__noinline int nat_conflict(__u32 dead)
{
	struct cpu *c = this_cpu();
	if (!c || !nat_find(0))
		return 0;
	__u32 place = c->p.place;
	__u64 tag = c->p.tag;
	nat_reset_victim(&c->p);
	if (nat_weigh(place, 0) <= NAT_CLOSED || dead)
		remove_state(place, tag, GONE_RECYCLED);
	return nat_find(0);
}

// After no translation could be evicted, no packet searches again for so long.
#define NAT_DRY 10000000LL

// A CPU that loses a race tries again: those that won it have got what they needed, so no CPU loses
// many.
enum { NAT_RACES = 8, NAT_LOST = 1 << 16 };

// nat_evict_for evicts a translation of a pod, with 0 of any pod.
__always_inline int nat_evict_for(struct cpu *c, __u32 pod)
{
	if (unlikely(c->dry_pod == pod + 1 && c->p.now < c->dry_pod_until))
		return 0;
	for (__u32 i = 0; i < NAT_RACES; i++) {
		if (nat_evict(pod))
			return 1;
		if (c->p.nat_rank != ~0ULL) // another CPU has found the same one
			continue;
		c->dry_pod = pod + 1;
		c->dry_pod_until = c->p.now + NAT_DRY;
		return 0;
	}
	return 0;
}

// nat_reserve makes sure that there may be one more translation of a pod, 1 + its place or 0.
__always_inline int nat_reserve(struct cpu *c, struct config *cf, __u32 pod)
{
	__u32 zero = 0, place = pod - 1;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);
	struct nat_count *of = pod ? bpf_map_lookup_elem(&nat_counts, &place) : NULL;

	if (!g || (of && cf->max_pod_nats && READ_ONCE(of->nats) >= cf->max_pod_nats &&
		   !nat_evict_for(c, pod)))
		return 0;
	if (READ_ONCE(g->nats) >= cf->max_nats && !nat_evict_for(c, 0))
		return 0;
	return READ_ONCE(g->states) + c->pending + 2 <= cf->max_states || reclaim_dead(cf->sets) ||
	       nat_evict_for(c, 0);
}

// nat_claim takes an entry for p->key and fills it but for its tag. It sets p->place.
__always_inline int nat_claim(struct config *cf, struct pkt *p, __u32 meta)
{
	if (!claim_spare(p, slow_claim(p->tag)) && !claim(0) && !claim(1) &&
	    !(move_one(0) && claim(1)) &&
	    !((reclaim_dead(cf->sets) || nat_evict_sets(cf->sets)) && claim(1)))
		return REASON_STATES_FULL;
	__u32 way = p->place & (WAYS - 1);
	struct set *s = set_at(p->place / WAYS);
	if (!s)
		return REASON_STATES_FULL;
	s->addr[way].low_hi = p->key.low_hi;
	s->addr[way].low_lo = p->key.low_lo;
	s->addr[way].high_hi = p->key.high_hi;
	s->addr[way].high_lo = p->key.high_lo;
	struct side *low = low_side(s, way), *high = high_side(s, way);
	__builtin_memset(low, 0, sizeof(*low));
	__builtin_memset(high, 0, sizeof(*high));
	low->flags = meta;
	(p->from ? high : low)->flags |= META_MADE;
	low->rule = high->rule = NAT_RULE;
	low->created = high->created = low->last = high->last = p->now;
	return 0;
}

// host_uses reports whether a socket of the host would receive the answers to the goal.
__always_inline int host_uses(struct __sk_buff *skb, struct pkt *p)
{
	struct bpf_sock_tuple *t = (struct bpf_sock_tuple *)p->buf;
	struct tuple *g = &p->goal;
	int four = p->version == 4;
	void *sock;

	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP)
		return 0;
	if (four) {
		t->four.saddr = be32((__u32)g->dst_lo);
		t->four.daddr = be32((__u32)g->src_lo);
		t->four.sport = be16(g->ports & 0xffff);
		t->four.dport = be16(g->ports >> 16);
	} else {
		put64(&t->six.saddr[0], g->dst_hi);
		put64(&t->six.saddr[2], g->dst_lo);
		put64(&t->six.daddr[0], g->src_hi);
		put64(&t->six.daddr[2], g->src_lo);
		t->six.sport = be16(g->ports & 0xffff);
		t->six.dport = be16(g->ports >> 16);
	}
	__u32 size = four ? sizeof(t->four) : sizeof(t->six);
	if (p->proto == PROTO_TCP)
		sock = bpf_skc_lookup_tcp(skb, t, size, -1, 0);
	else
		sock = bpf_sk_lookup_udp(skb, t, size, -1, 0);
	if (!sock)
		return 0;
	bpf_sk_release(sock);
	return 1;
}

__always_inline void published_key(struct published_key *k, struct pkt *p, __u64 hi, __u64 lo,
				   __u32 port, int any)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->addr.hi = any ? 0 : hi;
	k->addr.lo = !any ? lo : p->version == 4 ? (__u64)MAPPED << 32 : 0;
	k->port = port;
	k->proto = p->proto;
}

// is_published: a port of the address that p->goal comes from is published.
__always_inline int is_published(struct pkt *p, __u32 port)
{
	struct published_key k;

	published_key(&k, p, p->goal.src_hi, p->goal.src_lo, port, 0);
	if (bpf_map_lookup_elem(&published, &k))
		return 1;
	published_key(&k, p, 0, 0, port, 1);
	return bpf_map_lookup_elem(&published, &k) != NULL;
}

// nat_create makes the translation between p->was, the tuple on the wire, and p->goal, the tuple
// that rules see, both as the caller sends them; for META_SOURCE they change places. It returns 0,
// or the reason why not: REASON_NAT_PORTS if one of the tuples has a translation already. It makes
// both halves or none. It is called after the packet has passed, or with META_FRESH, which marks
// that the packet may yet be refused. REASON_STATES_FULL: the table is full, whatever the tuples.
__noinline int nat_create(struct __sk_buff *skb, __u32 how)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_STATES_FULL;
	struct pkt *p = &c->p;
	__u32 source = how & META_SOURCE;
	struct tuple *w = source ? &p->goal : &p->was, *i = source ? &p->was : &p->goal;
	struct endpoint *e = source ? pod_at(i->src_hi, i->src_lo) : pod_at(i->dst_hi, i->dst_lo);
	__u32 pod = e ? e->place + 1 : 0;
	canonical(p, w->src_hi, w->src_lo, w->dst_hi, w->dst_lo, w->ports, p->proto);
	if (nat_conflict(0))
		return REASON_NAT_PORTS;
	if (!nat_reserve(c, cf, pod))
		return REASON_STATES_FULL;
	int why = nat_claim(cf, p, META_WIRE | source);
	if (why)
		return why;
	__u32 wire = p->place, wire_from = p->from;
	__u64 wire_tag = p->tag;
	canonical(p, i->src_hi, i->src_lo, i->dst_hi, i->dst_lo, i->ports, p->proto);
	// The state is new: what was translated before was another flow.
	why = nat_conflict(new_state(p)) ? REASON_NAT_PORTS :
					   nat_claim(cf, p, source | (how & META_FRESH));
	if (why) {
		unclaim(p, wire);
		return why;
	}
	__u32 inner = p->place, cross = wire_from != p->from ? META_CROSS : 0;
	__u64 inner_tag = p->tag;
	struct set *ws = set_at(wire / WAYS), *is = set_at(inner / WAYS);
	struct tag_line *wt = tags_at(wire / WAYS), *it = tags_at(inner / WAYS);
	if (!ws || !is || !wt || !it)
		return REASON_STATES_FULL;
	low_side(ws, wire)->track = inner;
	low_side(is, inner)->track = wire;
	low_side(ws, wire)->flags |= cross;
	low_side(is, inner)->flags |= cross;
	high_side(is, inner)->track = pod << NAT_POD_SHIFT | PHASE_OPENING;
	// it does not have the sequence numbers of a TCP connection
	if (p->first_flow || (p->tcp_flags & (TH_SYN | TH_ACK)) != TH_SYN) {
		low_side(is, inner)->flags |= META_LOOSE;
		high_side(is, inner)->flags |= META_LOOSE;
	}
	p->nat_inner = 1 + inner;
	p->nat_from = p->from;
	if (!(how & META_FRESH))
		nat_phase(skb);
	count_states(c, cf, 2);
	count_nat(pod << NAT_POD_SHIFT, 1);
	c->created += 2;
	store_ordered(&it->tag[inner & (WAYS - 1)], inner_tag);
	store_ordered(&wt->tag[wire & (WAYS - 1)], wire_tag);
	if (!settle(inner))
		return REASON_NAT_PORTS;
	canonical(p, w->src_hi, w->src_lo, w->dst_hi, w->dst_lo, w->ports, p->proto);
	key_hash(p, cf, NAT_FLOW);
	return settle(wire) ? 0 : REASON_NAT_PORTS;
}
