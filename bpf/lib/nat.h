// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Translations, docs/design/0004-containers.md section 4. Each has two entries in the table of states: one keyed by the tuple on the wire, one by the
// tuple that rules see. Each names the other by its place (side.track of the low end), so that either tuple leads to the other.
//
// The one who made a translation is the one who called: a pod that hides behind the host's address (META_SOURCE), or the client of a published port.
#pragma once

#include "judge.h"
#include "pod.h"

enum { NAT_TRIES = 32, NODE_QUERY = 139 };
#define NAT_TOUCH 1000000000LL // how exact the time of the last packet is: lines that both directions read are rarely written

// ports_of are what a translation calls ports: those of struct key.
inline_always __u32 ports_of(struct pkt *p)
{
	if (!is_icmp(p))
		return p->ports;
	return icmp_ports(p->version, p->icmp_type, p->seq);
}

inline_always void tuple_of(struct pkt *p, struct tuple *t)
{
	t->src_hi = p->src_hi;
	t->src_lo = p->src_lo;
	t->dst_hi = p->dst_hi;
	t->dst_lo = p->dst_lo;
	t->ports = ports_of(p);
}

// become turns the fields of the packet, not the frame, into those of a tuple.
inline_always void become(struct pkt *p, struct tuple *t)
{
	if (!p->translated)
		tuple_of(p, &p->was);
	p->translated = 1;
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

// nat_find looks for the translation of p->key and sets p->place.
checked_once int nat_find(__u32 unused)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return unused;
	struct pkt *p = &c->p;
	key_hash(p, cf, NAT_FLOW);
	return find(p, cf);
}

// nat_touch notes that a side of a translation has sent, in both entries.
inline_always void nat_touch(struct pkt *p, struct set *s, struct side *d, struct set *o, struct side *od)
{
	__u32 ending = p->proto != PROTO_TCP ? 0 : (p->tcp_flags & TH_FIN ? SIDE_FIN : 0) | (p->tcp_flags & TH_RST ? SIDE_RST : 0);

	if (p->now - once(d->last) > NAT_TOUCH || p->now - once(od->last) > NAT_TOUCH) {
		d->last = p->now;
		od->last = p->now;
	}
	if (unlikely(p->is_error))
		return;
	if (unlikely(!(once(d->flags) & SIDE_SEEN))) {
		set_flags(d, SIDE_SEEN);
		set_flags(od, SIDE_SEEN);
		if (!(once(d->flags) & META_MADE)) {
			hatch(p->place);
			hatch(p->partner);
		}
	}
	if (unlikely(ending)) {
		set_flags(d, ending);
		set_flags(od, ending);
	}
}

// nat_follow looks p->key up among the translations keyed by one kind of tuple (META_WIRE or 0), and sets p->goal to the other tuple.
checked_once int nat_follow(__u32 wire)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct pkt *p = &c->p;
	if (p->keyed != KEY_SET || !nat_find(0))
		return 0;
	__u32 place = p->place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = p->from ? high : low;
	__u32 flags = low->flags;
	// The caller's packets are translated from the wire for a published port, and to the wire for a source.
	__u32 caller = (wire != 0) ^ ((flags & META_SOURCE) != 0), is_caller = (d->flags & META_MADE) != 0;
	if ((flags & META_WIRE) != wire || caller != is_caller)
		return 0;
	__u32 partner = low->track;
	struct set *o = set_at(partner / WAYS);
	struct tag_line *ot = tags_at(partner / WAYS);
	if (!o || !ot)
		return 0;
	__u64 tag = once(ot->tag[partner & (WAYS - 1)]);
	struct side *olow = low_side(o, partner), *ohigh = high_side(o, partner);
	if ((tag & TAG_MASK) != TAG_LIVE || olow->rule != NAT_RULE || olow->track != place || olow->created != low->created ||
	    expired(cf, low, high, p->key.proto, p->now)) {
		remove_state(place, p->tag, GONE_EXPIRED);
		return 0;
	}
	__u32 from = p->from ^ (flags & META_CROSS ? 1 : 0), ports = tag >> 32, way = partner & (WAYS - 1);
	struct tuple *t = &p->goal;
	t->src_hi = from ? o->addr[way].high_hi : o->addr[way].low_hi;
	t->src_lo = from ? o->addr[way].high_lo : o->addr[way].low_lo;
	t->dst_hi = from ? o->addr[way].low_hi : o->addr[way].high_hi;
	t->dst_lo = from ? o->addr[way].low_lo : o->addr[way].high_lo;
	t->ports = from ? ports << 16 | ports >> 16 : ports;
	p->partner = partner;
	nat_touch(p, s, d, o, from ? ohigh : olow);
	return 1;
}

// nat_claim takes an entry for p->key, which is not in the table, and fills it but for its tag. It sets p->place.
inline_always int nat_claim(struct config *cf, struct pkt *p, __u32 meta)
{
	if (nat_find(0))
		return REASON_NAT_PORTS;
	if (!claim_spare(p, long_claim(p->tag)) && !claim(0) && !claim(1) && (!reclaim(cf, p) || !claim(1)))
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
	low->flags = meta | META_EMBRYO;
	high->flags = 0;
	(p->from ? high : low)->flags |= META_MADE | SIDE_SEEN;
	low->rule = high->rule = NAT_RULE;
	low->created = high->created = low->last = high->last = p->now;
	return 0;
}

// host_uses reports that a socket of the host's own would hear the answers to the goal.
inline_always int host_uses(struct __sk_buff *skb, struct pkt *p)
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

// nat_make makes the translation between p->was, the tuple on the wire, and p->goal, the tuple that rules see, both as the caller sends them; for
// META_SOURCE they change places, and no socket of the host's own may use the port. It returns 0 or the reason why not: REASON_NAT_PORTS if one of the tuples has a translation already.
checked_once int nat_make(struct __sk_buff *skb, __u32 source)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_STATES_FULL;
	struct pkt *p = &c->p;
	struct tuple *w = source ? &p->goal : &p->was, *i = source ? &p->was : &p->goal;
	if (source && host_uses(skb, p))
		return REASON_NAT_PORTS;
	int why = room(c, cf);
	if (why)
		return why;
	canonical(p, w->src_hi, w->src_lo, w->dst_hi, w->dst_lo, w->ports, p->proto);
	why = nat_claim(cf, p, META_WIRE | (source & META_SOURCE));
	if (why)
		return why;
	__u32 wire = p->place, wire_from = p->from;
	__u64 wire_tag = p->tag;
	canonical(p, i->src_hi, i->src_lo, i->dst_hi, i->dst_lo, i->ports, p->proto);
	why = nat_claim(cf, p, source & META_SOURCE);
	if (why) {
		unclaim(p, wire);
		return why;
	}
	__u32 inner = p->place, cross = wire_from != p->from ? META_CROSS : 0;
	struct set *ws = set_at(wire / WAYS), *is = set_at(inner / WAYS);
	struct tag_line *wt = tags_at(wire / WAYS), *it = tags_at(inner / WAYS);
	if (!ws || !is || !wt || !it)
		return REASON_STATES_FULL;
	low_side(ws, wire)->track = inner;
	low_side(is, inner)->track = wire;
	low_side(ws, wire)->flags |= cross;
	low_side(is, inner)->flags |= cross;
	count_states(c, cf, 2);
	count_embryos(2);
	c->created += 2;
	__sync_lock_test_and_set(&wt->tag[wire & (WAYS - 1)], wire_tag | TAG_EMBRYO);
	__sync_lock_test_and_set(&it->tag[inner & (WAYS - 1)], p->tag | TAG_EMBRYO);
	__u64 inner_tag = p->tag;
	if (settle(inner)) {
		canonical(p, w->src_hi, w->src_lo, w->dst_hi, w->dst_lo, w->ports, p->proto);
		key_hash(p, cf, NAT_FLOW);
		if (settle(wire))
			return 0;
		remove_state(inner, inner_tag, GONE_DOUBLE);
		return REASON_NAT_PORTS;
	}
	remove_state(wire, wire_tag, GONE_DOUBLE);
	return REASON_NAT_PORTS;
}

// try_port tries to make the translation with one source port.
inline_always int try_port(struct __sk_buff *skb, struct pkt *p, __u32 port)
{
	if (is_icmp(p))
		p->goal.ports = icmp_ports(p->version, p->icmp_type, port << 16);
	else
		p->goal.ports = port << 16 | (p->goal.ports & 0xffff);
	return nat_make(skb, META_SOURCE);
}

// masquerade hides the source of the packet behind p->goal.src, with a port that nobody uses: its own if it lies in the range, else a keyed hash and
// what follows. Ids of ICMP queries may have any value, but that
// of a node information query is the question; what has no ports, and SCTP, whose checksum covers them, keeps what it has. p->was and p->goal are
// set but for the goal's port. It returns 0 or a reason.
checked_once int masquerade(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct forwarding *f = ways();
	if (!c || !cf || !f)
		return REASON_NAT_PORTS;
	struct pkt *p = &c->p;
	struct tuple *t = &p->was;
	int icmp = is_icmp(p), named = icmp && p->icmp_type != NODE_QUERY, movable = p->proto == PROTO_TCP || p->proto == PROTO_UDP || p->proto == PROTO_UDPLITE;
	__u32 own = t->ports >> 16;

	p->at = icmp ? 0 : f->port_lo;
	p->end = icmp ? 65536 : f->port_hi - f->port_lo + 1;
	p->left = hash5(cf->seed, t->src_hi, t->src_lo, t->dst_hi, t->dst_lo, t->ports);
	if (!movable || own - p->at < p->end) {
		int why = try_port(skb, p, own);
		if (why != REASON_NAT_PORTS || (!movable && !(named && own)))
			return why;
	}
	for (__u32 i = 0; i < NAT_TRIES; i++) {
		__u32 span = once(p->end), step = once(p->left) + 0x9e3779b1;
		if (!span)
			break;
		once(p->left) = step;
		int why = try_port(skb, p, once(p->at) + step % span);
		if (why != REASON_NAT_PORTS)
			return why;
	}
	return REASON_NAT_PORTS;
}

inline_always void published_key(struct published_key *k, struct pkt *p, int any)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->addr.hi = any ? 0 : p->dst_hi;
	k->addr.lo = !any ? p->dst_lo : p->version == 4 ? (__u64)MAPPED << 32 : 0;
	k->port = p->ports & 0xffff;
	k->proto = p->proto;
}

// own_address: the packet goes to an address of the host.
checked_once int own_address(__u32 unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return unused;
	return is_address(0, c->p.dst_hi, c->p.dst_lo);
}

inline_always int is_loopback(__u8 version, __u64 hi, __u64 lo)
{
	return version == 4 ? (__u8)(lo >> 24) == 127 : !hi && lo == 1;
}

// find_published sets p->goal to what a packet to a published port becomes, and returns 0 if it is none.
checked_once int find_published(__u32 unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return unused;
	struct pkt *p = &c->p;
	struct published_key k;
	if (p->frag & FRAG_LATER || (p->proto != PROTO_TCP && p->proto != PROTO_UDP && p->proto != PROTO_SCTP))
		return 0;
	published_key(&k, p, 0);
	struct published *to = bpf_map_lookup_elem(&published, &k);
	if (!to) {
		published_key(&k, p, 1);
		to = bpf_map_lookup_elem(&published, &k);
		if (!to || (!is_address(0, p->dst_hi, p->dst_lo) && !is_loopback(p->version, p->dst_hi, p->dst_lo)))
			return 0;
	}
	tuple_of(p, &p->goal);
	p->goal.dst_hi = to->addr.hi;
	p->goal.dst_lo = to->addr.lo;
	p->goal.ports = (p->goal.ports & 0xffff0000) | (to->port & 0xffff);
	return 1;
}
