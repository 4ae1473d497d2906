// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// A client may use one source port for a published port and for the pod itself, or for two ports
// that lead to one. These two flows would have the same ends in the pod. The later one through a
// published port gets another source port there, as in Linux (nf_nat_used_tuple).
#pragma once

#include "masquerade.h"

enum { CLASH_TRIES = 8 };

// clashes: with this source port, nat->new is the tuple of another flow in the pod that is alive.
__noinline int clashes(struct cpu *c, __u32 port)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 1;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct tuple *t = &c->nat.new;
	t->ports = port << 16 | (t->ports & 0xffff);
	set_key(p, look, t);
	if (nat_find(c) && !reclaimable(c, look->place))
		return 1;
	struct maybe flow =
		current_flow(READ_ONCE(cf->current)); // nearly all states have this name
	key_hash(look, cf, exists(flow) ? number(flow) : 0);
	if (!find(c, look, cf))
		return 0;
	__u32 place = look->place;
	struct set *s = set_at(place / WAYS);
	if (!s || reclaimable(c, place))
		return 0;
	__u32 flags = low_side(s, place)->flags;
	// The state may be that of the packet's own flow, whose translation was evicted. But a flow
	// that was answered does not begin again.
	return !(flags & META_PUBLISHED) ||
	       (p->proto == PROTO_TCP && bare_syn(p->tcp_flags) && !(flags & META_HALF_OPEN));
}

// choose_source gives nat->new, of a packet to a published port that has no translation, a source
// port with which it clashes with no other flow. It returns 0 if none of those tried is free, or
// the protocol's ports cannot be changed.
__noinline int choose_source(struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return 0;
	const struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;
	if (likely(!clashes(c, c->nat.new.ports >> 16)))
		return 1;
	if (!may_change_port(p))
		return 0;
	scratch->left = hash5(cf->seed + SEED_NAT, p->src_hi, p->src_lo,
			      (__u64)p->proto << 32 | p->ports, p->dst_hi, p->dst_lo);
	for (__u32 i = 0; i < CLASH_TRIES; i++) {
		__u32 span = f->ports ? f->ports : 65536 - UNPRIVILEGED;
		__u32 step = READ_ONCE(scratch->left) + 0x9e3779b1;
		WRITE_ONCE(scratch->left, step);
		__u32 n = (__u64)step * span >> 32;
		if (!clashes(c, f->ports ? port_of(f, n) : UNPRIVILEGED + n))
			return 1;
	}
	return 0;
}
