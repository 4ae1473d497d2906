// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the state machines need besides the decoder's fields: the window scale of a SYN, the first
// chunk of an SCTP packet.
#pragma once

#include "sctp.h"

// Kinds of TCP options.
enum { TCP_MSS = 2, TCP_SCALE = 3, TCP_SACK = 4, TCP_STAMPS = 8 };

// read_scale finds the window scale of a SYN, as packet.WindowScale does.
static __always_inline void read_scale(struct __sk_buff *skb, struct packet *p,
				       struct scratch *scratch)
{
	__u32 n = p->payload - p->l4 - 20;

	p->scale = NO_SCALE;
	opaque(n);
	if (n == 0 || n > 40)
		return;
	if (bpf_skb_load_bytes(skb, p->l3 + p->l4 + 20, scratch->buf, sized(n, 64)) < 0)
		return;
	scratch->at = 0;
	scratch->end = p->payload - p->l4 - 20;
	for (int i = 0; i < MAX_OPTIONS; i++) {
		struct option o = next_option(scratch);
		if (o.kind == OPTION_END || o.kind == OPTION_BAD)
			return;
		if (o.kind == TCP_SCALE && o.len == 3) {
			__u8 shift = scratch->buf[(o.at + 2) & 63];
			p->scale = shift > 14 ? 14 : shift;
			return;
		}
	}
}

// read_scale_or_chunk reads the window scale of a TCP segment, or the first chunk of an SCTP
// packet.
__noinline int read_scale_or_chunk(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;

	if (p->proto == PROTO_TCP) {
		read_scale(skb, p, scratch);
		return 0;
	}
	p->chunk = NO_CHUNK;
	p->chunk_bits = 0;
	p->init_tag = 0;
	if (p->payload + 4 <= p->len &&
	    bpf_skb_load_bytes(skb, p->l3 + p->payload, scratch->buf, 2) == 0) {
		p->chunk = scratch->buf[0];
		p->chunk_bits = scratch->buf[1];
	}
	if ((p->chunk == CHUNK_INIT || p->chunk == CHUNK_INIT_ACK) && p->payload + 8 <= p->len &&
	    bpf_skb_load_bytes(skb, p->l3 + p->payload + 4, scratch->buf, 4) == 0)
		p->init_tag = get32(scratch->buf);
	return 0;
}
