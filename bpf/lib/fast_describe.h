// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the fast path hands to its parts that are not about established flows.
#pragma once

#include "fast_decode.h"
#include "packet.h"

// What fast_established knows of a packet: nothing, that it passes, that it has no state, that it
// moves a state on, or that the rules look no state up.
enum { FAST_NOT, FAST_DONE, FAST_NEW, FAST_STEP, FAST_STATELESS };

// fast_describe writes a packet into p as the decoder would, as far as the fast path needs it,
// except for its addresses.
static __always_inline void fast_describe(struct packet *p, const struct fast_packet *e)
{
	p->ports = e->ports;
	p->len = e->len;
	p->version = e->version;
	p->proto = e->proto;
	p->l4 = e->len - e->rest;
	if (e->proto != PROTO_TCP) {
		p->tcp_flags = 0;
		return;
	}
	p->seq = e->seq;
	p->ack = e->ack;
	p->window = fast_tcp_window(e);
	p->tcp_flags = fast_tcp_flags(e);
	p->payload = p->l4 + fast_tcp_header(e);
}

// fast_describe_ends writes its addresses. The high end of k is the sender if `from` is 1.
static __always_inline void fast_describe_ends(struct packet *p, struct lookup *look,
					       const struct key *k, int from)
{
	look->from = from;
	p->src_hi = from ? k->high_hi : k->low_hi;
	p->src_lo = from ? k->high_lo : k->low_lo;
	p->dst_hi = from ? k->low_hi : k->high_hi;
	p->dst_lo = from ? k->low_lo : k->high_lo;
}
