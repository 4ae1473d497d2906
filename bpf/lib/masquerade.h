// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which ports masqueraded pods get, and where the published ports of the host lead.
#pragma once

#include "nat_create.h"

enum { NAT_TRIES = 32, NODE_QUERY = 139, UNPRIVILEGED = 1024 };

// state_uses: the tuple of look->key is that of a query of the host itself, by its state. No socket
// shows which ids it uses.
static __always_inline int state_uses(struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct lookup *look = &c->look;
	struct maybe flow = current_flow(READ_ONCE(cf->current));

	key_hash(look, cf, exists(flow) ? number(flow) : 0);
	return find(c, look, cf) && !reclaimable(c, look->place);
}

// port_taken: the wire tuple nat->new with a source port is not free. A translation has it, which
// is then weighed for eviction, or a published port, a socket or a query of the host does.
__noinline int port_taken(struct __sk_buff *skb, struct cpu *c, __u32 port)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return 1;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct scratch *scratch = &c->scratch;
	struct tuple *g = &nat->new;
	if (is_icmp(p))
		g->ports = icmp_ports(p->version, p->icmp_type, port << 16);
	else
		g->ports = port << 16 | (g->ports & 0xffff);
	set_key(p, look, g);
	if (nat_find(c)) {
		__u64 before = nat->victim.rank;
		__u64 tag = look->tag;
		__u32 place = look->place;
		if (nat_weigh(c, place, 0) != NAT_OVER) {
			if (nat->victim.rank != before)
				nat->victim.port = port;
			return 1;
		}
		remove_state(c, place, tag, GONE_EXPIRED);
		nat_reset_victim(nat);
	}
	// With an address of its own (keep), the answers find the translation first.
	return !nat->keep_port &&
	       ((f->published && is_published(p, nat, port)) ||
		(is_icmp(p) ? state_uses(c) : host_socket_uses(skb, p, nat, scratch)));
}

// port_of returns the nth of the ports to choose from.
static __always_inline __u32 port_of(struct forwarding *f, __u32 n)
{
	for (int i = 0; i < MAX_PORT_SPANS; i++) {
		if (n < f->span[i].count)
			return f->span[i].first + n;
		n -= f->span[i].count;
	}
	return 0;
}

static __always_inline int in_span(struct forwarding *f, __u32 port)
{
	for (int i = 0; i < MAX_PORT_SPANS; i++) {
		if (port - f->span[i].first < f->span[i].count)
			return 1;
	}
	return 0;
}

// may_change_port: the protocol has ports that may change. Ids of ICMP queries are not ports.
static __always_inline int may_change_port(const struct packet *p)
{
	return p->proto == PROTO_TCP || p->proto == PROTO_UDP || p->proto == PROTO_UDPLITE;
}

// choose_port finds a free port for nat->new. It is the pod's own if that lies in the range, else
// one of a sequence that begins at a keyed hash of the pod's end. It returns 0, or REASON_NAT_PORTS
// if none of those tried is free; then nat->victim is the translation to evict, if any.
__noinline int choose_port(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return REASON_NAT_PORTS;
	const struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	struct scratch *scratch = &c->scratch;
	struct tuple *t = &nat->orig;
	__u32 own = t->ports >> 16, icmp = is_icmp(p) && p->icmp_type != NODE_QUERY;

	nat_reset_victim(nat);
	nat->victim.port = own;
	if ((nat->keep_port || !may_change_port(p) || in_span(f, own)) && !port_taken(skb, c, own))
		return 0;
	if (nat->keep_port || (!may_change_port(p) && !(icmp && own)))
		return REASON_NAT_PORTS;
	scratch->left =
		hash5(cf->seed + SEED_NAT, t->src_hi, t->src_lo, (__u64)p->proto << 32 | own, 0, 0);
	for (__u32 i = 0; i < NAT_TRIES; i++) {
		__u32 span = icmp ? 65536 : f->ports, step = READ_ONCE(scratch->left) + 0x9e3779b1;
		if (!span)
			break;
		WRITE_ONCE(scratch->left, step);
		__u32 n = (__u64)step * span >> 32;
		if (!port_taken(skb, c, icmp ? n : port_of(f, n)))
			return 0;
	}
	return REASON_NAT_PORTS;
}

// masquerade_once gives the packet a port and makes its translation. It returns 0, a reason, or
// NAT_LOST if another CPU took the port or evicted the same translation a moment before.
__noinline int masquerade_once(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return REASON_NAT_PORTS;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct tuple *t = &nat->orig;

	if (choose_port(skb, c)) {
		__u32 port = nat->victim.port;
		if (nat->victim.rank == ~0ULL)
			return REASON_NAT_PORTS;
		if (!nat_evict_found(c, nat) || port_taken(skb, c, port))
			return NAT_LOST;
	}
	int why = nat_create(skb, c, META_SOURCE);
	if (why != REASON_NAT_PORTS)
		return why;
	// The other CPU may have a packet of the same flow.
	set_key(p, look, t);
	return nat_follow(c, 0) ? 0 : NAT_LOST;
}

// masquerade hides the source of the packet behind nat->new.src. Ids of ICMP queries may have any
// value, but the id of a node information query is the query itself. What has no ports keeps what
// it has, and so does SCTP, whose checksum covers the ports. nat->orig and nat->new are set but for
// the new port. It returns 0 or a reason.
__noinline int masquerade(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return REASON_NAT_PORTS;
	const struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	struct tuple *g = &nat->new;
	__u64 end =
		hash5(cf->seed + SEED_NAT, g->dst_hi, g->dst_lo, g->src_hi, g->src_lo,
		      (__u64)p->proto << 32 | (may_change_port(p) ? g->ports & 0xffff : g->ports)) |
		1;

	if (unlikely(c->no_port_end == end && p->now < c->no_port_until))
		return REASON_NAT_PORTS;
	int why = NAT_LOST;
	for (__u32 i = 0; i < NAT_RACES && why == NAT_LOST; i++)
		why = masquerade_once(skb, c);
	if (why == NAT_LOST)
		return REASON_NAT_PORTS;
	if (why == REASON_NAT_PORTS) {
		c->no_port_end = end;
		c->no_port_until = p->now + NAT_BACKOFF;
	}
	return why;
}

// own_address: the packet goes to an address of the host.
__noinline int own_address(struct cpu *c)
{
	if (!c)
		return 0;
	return is_mine(c->packet.version, c->packet.dst_hi, c->packet.dst_lo);
}

static __always_inline int is_loopback(__u8 version, __u64 hi, __u64 lo)
{
	return version == 4 ? (__u8)(lo >> 24) == 127 : !hi && lo == 1;
}

// find_port returns what a port at the packet's destination leads to, NULL if it is not published.
static __always_inline struct published *find_port(const struct packet *p)
{
	struct published_key k;

	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP && p->proto != PROTO_SCTP)
		return NULL;
	published_key(&k, p, p->dst_hi, p->dst_lo, p->ports & 0xffff, 0);
	struct published *to = bpf_map_lookup_elem(&published, &k);
	if (to)
		return to;
	published_key(&k, p, 0, 0, p->ports & 0xffff, 1);
	to = bpf_map_lookup_elem(&published, &k);
	return to && (is_mine(p->version, p->dst_hi, p->dst_lo) ||
		      is_loopback(p->version, p->dst_hi, p->dst_lo)) ?
		       to :
		       NULL;
}

// find_published_address returns where the packet's destination leads with all its ports and
// protocols, NULL if it leads nowhere. Of ICMP only queries begin a flow.
static __always_inline struct published *find_published_address(const struct packet *p)
{
	struct published_key k;

	if (is_icmp(p) && !is_icmp_query(p->version, p->icmp_type))
		return NULL;
	published_key(&k, p, p->dst_hi, p->dst_lo, 0, 0);
	k.proto = 0;
	return bpf_map_lookup_elem(&published, &k);
}

// find_published sets nat->new to the translated tuple of a packet to a published port, and returns
// 0 if the port is not published. With `inside` the host or a pod has sent the packet. Then a
// forwarded port does not count: its target would answer past the host, or to the pod's own
// address. A service without a backend sets nat->make to MAKE_REFUSAL.
__noinline int find_published(struct cpu *c, __u32 inside)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return 0;
	const struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	nat->backend = NONE;
	if (p->frag & FRAG_LATER)
		return 0;
	struct published *to = find_port(p);
	__u32 whole = !to && f->masquerade & MASQUERADE_WHOLE;
	if (whole)
		to = find_published_address(p);
	if (!to || (inside && to->kind & TO_OTHER))
		return 0;
	nat->nat_rule = to->kind == TO_NAT_RULE ? to->port >> 16 : 0;
	tuple_of(p, &nat->new);
	if (unlikely(to->kind == TO_SERVICE)) {
		struct published_key k;

		published_key(&k, p, p->dst_hi, p->dst_lo, p->ports & 0xffff, 0);
		return choose_backend(p, nat, &k);
	}
	nat->new.dst_hi = to->addr.hi;
	nat->new.dst_lo = to->addr.lo;
	if (!whole)
		nat->new.ports = (nat->new.ports & 0xffff0000) | (to->port & 0xffff);
	return 1;
}
