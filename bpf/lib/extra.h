// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the state machines need besides the decoder's fields: the window scale of a SYN, the first
// chunk of an SCTP packet.
#pragma once

#include "parse.h"

// read_scale finds the window scale of a SYN, as packet.WindowScale does.
__always_inline void read_scale(struct __sk_buff *skb, struct pkt *p)
{
	__u32 n = p->payload - p->l4 - 20;

	p->scale = NO_SCALE;
	opaque(n);
	if (n == 0 || n > 40)
		return;
	if (bpf_skb_load_bytes(skb, p->l3 + p->l4 + 20, p->buf, sized(n, 64)) < 0)
		return;
	p->at = 0;
	p->end = p->payload - p->l4 - 20;
	for (int i = 0; i < 40; i++) {
		__u32 at = READ_ONCE(p->at), left = READ_ONCE(p->end) - at;
		if (!left || left > 64 || at > 61)
			return;
		__u8 kind = p->buf[at & 63], len = p->buf[(at + 1) & 63];
		if (kind == 0)
			return;
		if (kind == 1) {
			WRITE_ONCE(p->at, at + 1);
			continue;
		}
		if (left < 2 || len < 2 || len > left)
			return;
		if (kind == 3 && len == 3) {
			__u8 shift = p->buf[(at + 2) & 63];
			p->scale = shift > 14 ? 14 : shift;
			return;
		}
		WRITE_ONCE(p->at, at + len);
	}
}

// read_extras reads what the state machines need besides the decoder's fields.
__noinline int read_extras(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct pkt *p = &c->p;

	if (p->proto == PROTO_TCP) {
		read_scale(skb, p);
		return 0;
	}
	p->chunk = NO_CHUNK;
	p->chunk_bits = 0;
	if (p->payload + 4 <= p->len &&
	    bpf_skb_load_bytes(skb, p->l3 + p->payload, p->buf, 2) == 0) {
		p->chunk = p->buf[0];
		p->chunk_bits = p->buf[1];
	}
	return 0;
}
