// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Creation of translations, and their early end.
#pragma once

#include "nat.h"

// Which translation nat_forget ends: any, one that nothing has used, or one of a published port
// whose client sends the packet.
enum { FORGET_ANY, FORGET_FRESH, FORGET_FROM_CLIENT };

// nat_forget ends the translation of the packet's tuple, if there is one, and reports whether it
// did.
__noinline int nat_forget(struct cpu *c, __u32 which)
{
	if (!c || !nat_find_inner(c))
		return 0;
	__u32 place = c->look.place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	struct side *low = low_side(s, place), *d = c->nat.from ? high_side(s, place) : low;
	if ((which == FORGET_FRESH && !(low->flags & META_FRESH)) ||
	    (which == FORGET_FROM_CLIENT && (low->flags & META_SOURCE || !(d->flags & META_MADE))))
		return 0;
	return remove_state(c, place, c->look.tag, GONE_RECYCLED);
}

// Which translation nat_conflict removes, besides one that is over: none, or any but one of the
// same flow. With META_SOURCE the flow is masqueraded.
enum { CONFLICT_STAYS, CONFLICT_ENDS_OTHER };

// same_flow: the translation at look->place, which has the packet's inner tuple, belongs to the
// packet's flow. The sender has begun it, and it is masqueraded or has the same tuple on the wire.
// It changes look->key.
static __always_inline int same_flow(struct cpu *c, struct lookup *look, struct config *cf,
				     __u32 source)
{
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	struct side *low = low_side(s, place), *d = look->from ? high_side(s, place) : low;
	if ((low->flags & META_SOURCE) != source || !(d->flags & META_MADE))
		return 0;
	if (source)
		return 1;
	__u32 wire = partner_of(low);
	struct set *o = set_at(wire / WAYS);
	struct tag_line *t = tags_at(wire / WAYS);
	if (!o || !t)
		return 0;
	set_key(&c->packet, look, &c->nat.orig);
	key_hash(look, cf, NAT_FLOW);
	// its CPU may not have published this entry yet
	return !((READ_ONCE(t->tag[wire % WAYS]) ^ look->tag) & TAG_IDENTITY) &&
	       same_ends(o, wire % WAYS, &look->key);
}

// nat_conflict: the tuple look->key has one already. One that is over, or whose other half is
// missing, is removed first; others as `ends` says, because they are known to belong to another
// flow.
__noinline int nat_conflict(struct cpu *c, __u32 ends)
{
	struct config *cf = settings();
	if (!c || !cf || !nat_find(c))
		return 0;
	struct lookup *look = &c->look;
	__u32 place = look->place;
	__u64 tag = look->tag;
	nat_reset_victim(&c->nat);
	if (nat_weigh(c, place, 0) <= NAT_CLOSED) {
		remove_state(c, place, tag, GONE_RECYCLED);
	} else if (ends & CONFLICT_ENDS_OTHER) {
		if (same_flow(c, look, cf, ends & META_SOURCE))
			return 1;
		set_key(&c->packet, look, ends & META_SOURCE ? &c->nat.orig : &c->nat.new);
		remove_state(c, place, tag, GONE_RECYCLED);
	}
	return nat_find(c);
}

enum { NAT_LOST = 1 << 16 };

// nat_reserve makes sure that there may be one more translation, of the pod at a place if there is
// one.
static __always_inline int nat_reserve(struct cpu *c, struct config *cf, struct maybe pod)
{
	__u32 place = number(pod);
	struct gauge *g = gauges_now();
	struct nat_count *of = exists(pod) ? bpf_map_lookup_elem(&nat_counts, &place) : NULL;

	if (!g || (of && cf->max_pod_nats && READ_ONCE(of->nats) >= cf->max_pod_nats &&
		   !nat_evict_for(c, place)))
		return 0;
	if (READ_ONCE(g->nats) >= cf->max_nats && !nat_evict_for(c, NAT_ALL))
		return 0;
	return READ_ONCE(g->states) + c->pending + 2 <= cf->max_states ||
	       reclaim_dead(c, cf->sets) || nat_evict_for(c, NAT_ALL);
}

// nat_claim takes an entry for look->key and fills it but for its tag. It sets look->place.
static __always_inline int nat_claim(struct cpu *c, struct config *cf, const struct packet *p,
				     struct lookup *look, __u32 meta)
{
	if (!claim_spare(p, look, slow_claim(look->tag)) && !claim(c, 0) && !claim(c, 1) &&
	    !(move_one(c) && claim(c, 1)) &&
	    !((reclaim_dead(c, cf->sets) || nat_evict_sets(c, cf->sets)) && claim(c, 1)))
		return REASON_STATES_FULL;
	__u32 way = look->place & (WAYS - 1);
	struct set *s = set_at(look->place / WAYS);
	if (!s)
		return REASON_STATES_FULL;
	write_ends(s, way, &look->key);
	struct side *low = low_side(s, way), *high = high_side(s, way);
	__builtin_memset(low, 0, sizeof(*low));
	__builtin_memset(high, 0, sizeof(*high));
	low->flags = meta;
	(look->from ? high : low)->flags |= META_MADE;
	low->rule = high->rule = NAT_RULE;
	low->created = high->created = low->last = high->last = p->now;
	return 0;
}

// host_socket_uses reports whether a socket of the host would receive the answers to nat->new.
static __always_inline int host_socket_uses(struct __sk_buff *skb, const struct packet *p,
					    struct nat *nat, struct scratch *scratch)
{
	struct bpf_sock_tuple *t = (struct bpf_sock_tuple *)scratch->buf;
	struct tuple *g = &nat->new;
	void *sock;

	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP)
		return 0;
	__u32 size = sock_tuple(t, p->version, g->dst_hi, g->dst_lo, g->src_hi, g->src_lo,
				g->ports << 16 | g->ports >> 16);
	if (p->proto == PROTO_TCP)
		sock = bpf_skc_lookup_tcp(skb, t, size, -1, 0);
	else
		sock = bpf_sk_lookup_udp(skb, t, size, -1, 0);
	if (!sock)
		return 0;
	bpf_sk_release(sock);
	return 1;
}

static __always_inline void published_key(struct published_key *k, const struct packet *p, __u64 hi,
					  __u64 lo, __u32 port, int any)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->addr.hi = any ? 0 : hi;
	k->addr.lo = !any ? lo : p->version == 4 ? (__u64)MAPPED << 32 : 0;
	k->port = port;
	k->proto = p->proto;
}

// is_published: this port of the source address of nat->new is published.
static __always_inline int is_published(const struct packet *p, const struct nat *nat, __u32 port)
{
	struct published_key k;

	published_key(&k, p, nat->new.src_hi, nat->new.src_lo, port, 0);
	if (bpf_map_lookup_elem(&published, &k))
		return 1;
	published_key(&k, p, 0, 0, port, 1);
	return bpf_map_lookup_elem(&published, &k) != NULL;
}

// join_halves makes two new entries halves of each other and counts the translation. It takes the
// nat_word of the inner entry, and META_CROSS or 0. struct nat shows if a rule with nat makes it.
// Not in nat_create, whose stack is in the longest chain.
__noinline int join_halves(struct cpu *c, __u32 wire, __u32 inner, __u32 word, __u32 cross)
{
	struct config *cf = settings();
	struct set *ws = set_at(wire / WAYS), *is = set_at(inner / WAYS);
	if (!c || !cf || !ws || !is)
		return 0;
	struct side *low = low_side(is, inner), *high = high_side(is, inner);
	if (c->nat.instance | c->nat.nat_rule)
		cross |= META_NAT_RULE;
	side_partner(low_side(ws, wire)) = inner;
	low_side(ws, wire)->flags |= cross;
	side_partner(low) = wire;
	low->flags |= cross;
	side_nat_word(high) = word;
	// the entry does not have the sequence numbers of the TCP connection
	if (exists(c->look.first_flow) || !bare_syn(c->packet.tcp_flags)) {
		low->flags |= META_LOOSE;
		high->flags |= META_LOOSE;
	}
	count_states(c, cf, 2);
	count_nat(pod_in(high), 1);
	c->created += 2;
	return 1;
}

// nat_create makes the translation between nat->orig, the tuple on the wire, and nat->new, the
// tuple that rules see. With META_SOURCE nat->new is on the wire. Both are as the originator sends
// them. It returns 0, or the reason why not: REASON_NAT_PORTS if one of the tuples has a
// translation already. It makes both halves or none. It is called after the packet has passed, or
// with META_FRESH, which marks that the packet may yet be refused. REASON_STATES_FULL: the table is
// full, whatever the tuples.
__noinline int nat_create(struct __sk_buff *skb, struct cpu *c, __u32 how)
{
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_STATES_FULL;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	__u32 source = how & META_SOURCE;
	struct tuple *w = source ? &nat->new : &nat->orig, *i = source ? &nat->orig : &nat->new;
	struct endpoint *e = source ? pod_at(i->src_hi, i->src_lo) : pod_at(i->dst_hi, i->dst_lo);
	struct maybe pod = some(e ? e->place : NAT_NO_POD);
	set_key(p, look, w);
	if (nat_conflict(c, CONFLICT_STAYS))
		return REASON_NAT_PORTS;
	if (!nat_reserve(c, cf, pod))
		return REASON_STATES_FULL;
	int why = nat_claim(c, cf, p, look, META_WIRE | source);
	if (why)
		return why;
	__u32 wire = look->place, wire_from = look->from;
	__u64 wire_tag = look->tag;
	set_key(p, look, i);
	// If the state is new, an earlier translation was that of another flow. But one of this
	// flow was not there a moment ago: another CPU has another first packet.
	__u32 ends = new_state(look) ? CONFLICT_ENDS_OTHER | source : CONFLICT_STAYS;
	why = nat_conflict(c, ends) ? REASON_NAT_PORTS :
				      nat_claim(c, cf, p, look, source | (how & META_FRESH));
	if (why) {
		unclaim(p, wire);
		return why;
	}
	__u32 inner = look->place, cross = wire_from != look->from ? META_CROSS : 0;
	__u64 inner_tag = look->tag;
	struct tag_line *wt = tags_at(wire / WAYS), *it = tags_at(inner / WAYS);
	// with the backend: another CPU may follow the translation as soon as it is live
	__u32 backend = source ? 0 : nat->backend.plus1 << NAT_BACKEND_SHIFT,
	      word = nat_word(pod, PHASE_OPENING) | backend;
	if (!wt || !it || !join_halves(c, wire, inner, word, cross))
		return REASON_STATES_FULL;
	nat->inner = some(inner);
	nat->from = look->from;
	if (!(how & META_FRESH))
		nat_phase(skb, c);
	store_ordered(&it->tag[inner & (WAYS - 1)], inner_tag);
	store_ordered(&wt->tag[wire & (WAYS - 1)], wire_tag);
	if (resolve_duplicates(c, inner)) {
		set_key(p, look, w);
		key_hash(look, cf, NAT_FLOW);
		if (resolve_duplicates(c, wire))
			return 0;
	}
	// The CPU that has removed the inner entry may not have found the other one live yet.
	remove_state(c, wire, wire_tag, GONE_DUPLICATE);
	return REASON_NAT_PORTS;
}

// follow_first is for a packet whose translation could not be made, since another CPU has made that
// of the flow's other first packet. The packet follows that one if it leads to where nat->new does,
// which the rules have let pass. It may have another source port: then the state that the packet
// has made belongs to no flow. nat->new stays if it returns 0.
__noinline int follow_first(struct cpu *c)
{
	if (!c)
		return 0;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct tuple *t = &nat->new;
	__u64 hi = t->dst_hi, lo = t->dst_lo;
	__u32 instance = nat->nat_rule, ports = t->ports;
	struct address src = {t->src_hi, t->src_lo};
	set_key(p, look, &nat->orig);
	if (!nat_follow(c, META_WIRE))
		return 0;
	nat->nat_rule = instance;
	// a state with the addresses on the wire is that of both packets
	__u32 own = exists(look->first_flow) && (!instance || instance & SEEN_TRANSLATED);
	__u64 other = (t->dst_hi ^ hi) | (t->dst_lo ^ lo) | ((t->ports ^ ports) & 0xffff);
	if (other || (t->ports != ports && own && !new_state(look))) {
		t->src_hi = src.hi;
		t->src_lo = src.lo;
		t->dst_hi = hi;
		t->dst_lo = lo;
		t->ports = ports;
		return 0;
	}
	if (unlikely(t->ports != ports)) {
		if (own) {
			remove_state(c, look->first_place, look->first_tag, GONE_DUPLICATE);
			look->first_flow = NONE;
			c->verdict.state = USE_NONE;
		}
		apply_tuple(p, nat, t);
	}
	return 1;
}

enum { FIRST_LOOKS = 256 };

static long find_first(__u32 index, void *unused)
{
	struct cpu *c = this_cpu();
	int found = !c || follow_first(c);

	// The verifier wants to see 0 or 1. It does not know what a global function returns, but
	// clang 19 does, and leaves out what shows it.
	opaque(found);
	return found & 1;
}

// await_first is follow_first for a packet whose state is that of the other first packet: it waits
// until the other CPU has made the translation. A state that is older is one of another flow. So is
// one that the packet has left untouched: else an outsider could make each packet wait, by segments
// that do not fit a connection.
__noinline int await_first(struct cpu *c)
{
	if (!c || !exists(c->look.first_flow) || c->look.first_look != LOOK_HIT)
		return 0;
	__u32 place = c->look.first_place;
	struct set *s = set_at(place / WAYS);
	if (!s || c->packet.now - low_side(s, place)->created > FIRST_TIME)
		return 0;
	bpf_loop(FIRST_LOOKS, find_first, NULL, 0);
	return follow_first(c);
}

// publish_once makes the translation of a packet to a published port, and counts the connection of
// its backend, if it is to a service. It returns 0, a reason, or NAT_LOST if another CPU was a
// moment before.
__noinline int publish_once(struct __sk_buff *skb, struct cpu *c, __u32 how)
{
	int why = nat_create(skb, c, how);
	if (!c || unlikely(why))
		return why != REASON_NAT_PORTS ? why : follow_first(c) ? 0 : NAT_LOST;
	const struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	struct published_key k;
	__u32 inner = number(nat->inner);
	struct set *s = set_at(inner / WAYS);
	if (likely(!exists(nat->backend)) || !s)
		return 0;
	published_key(&k, p, nat->orig.dst_hi, nat->orig.dst_lo, nat->orig.ports & 0xffff, 0);
	if (begin_backend(p, nat, bpf_map_lookup_elem(&services, &k)))
		or_ordered(&side_nat_word(high_side(s, inner)), NAT_DRAWN);
	return 0;
}

// nat_create_published makes the translation of a packet to a published port, `how` as for
// nat_create, or has the packet follow that of the flow's other first packet. It returns 0 or a
// reason.
__noinline int nat_create_published(struct __sk_buff *skb, struct cpu *c, __u32 how)
{
	int why = NAT_LOST;

	for (__u32 i = 0; i < NAT_RACES && why == NAT_LOST; i++)
		why = publish_once(skb, c, how);
	return why == NAT_LOST ? REASON_NAT_PORTS : why;
}
