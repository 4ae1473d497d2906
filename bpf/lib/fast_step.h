// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path of segments that do more than move the numbers of an established connection. They
// open it, close it, or do not fit it. The state machine is that of the slow path.
#pragma once

#include "fast_describe.h"
#include "rule_cache.h"

// usual_scale returns the window scale among n bytes of TCP options o, of which 20 can be read. It
// returns -1 if they are not in the order of Linux, macOS or Windows.
static __always_inline int usual_scale(const __u8 *o, __u32 n)
{
	enum { SEGMENT = TCP_MSS << 8 | 4, SCALE = 1 << 16 | TCP_SCALE << 8 | 3 };
	__u32 first = get32(o + 4), at;

	if (!n)
		return NO_SCALE;
	if (get16(o) != SEGMENT)
		return -1;
	if (n == 4)
		return NO_SCALE;
	if (first == (TCP_SACK << 24 | 2 << 16 | TCP_STAMPS << 8 | 10) && n >= 20)
		at = get32(o + 16);
	else if (first == (1 << 24 | 1 << 16 | TCP_SACK << 8 | 2) && n >= 12)
		at = get32(o + 8);
	else
		at = first; // at least 8 bytes: n is a multiple of 4
	if (at >> 8 != SCALE)
		return -1;
	at &= 0xff;
	return at > 14 ? 14 : at;
}

// fast_read_scale reads the window scale of a SYN that fast_describe has described.
static __always_inline void fast_read_scale(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct packet *p = &c->packet;
	const __u8 *o = (void *)(long)skb->data + below(l2 + p->l4 + sizeof(struct tcp), 128);
	int scale = -1;
	if (o + 20 <= (__u8 *)(long)skb->data_end)
		scale = usual_scale(o, p->payload - p->l4 - sizeof(struct tcp));
	if (likely(scale >= 0)) {
		p->scale = scale;
		return;
	}
	p->l3 = l2;
	read_scale_or_chunk(skb, c);
}

// fast_step advances the state that fast_established has found by the segment that it has
// described. The rule of the state, which is in the verdict, only counts packets and lets them
// pass. It reports whether the packet was evaluated: not if the state has ended, which is then
// removed.
__noinline int fast_step(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct verdict *v = &c->verdict;
	__u32 place = look->place, id = v->id;
	__u16 number = v->number, slot = v->slot;
	if (p->tcp_flags & TH_SYN)
		fast_read_scale(skb, c, l2);
	struct tag_line *t = tags_at(place / WAYS);
	// another flow may have taken the entry meanwhile
	if (!t || !same_tag(READ_ONCE(t->tag[place % WAYS]), look->tag))
		return 0;
	look->key.proto = PROTO_TCP;
	look->is_error = 0;
	look->proved = NONE;
	int found = step(c, place);
	if (found == LOOK_MISS)
		return 0;
	count_proved(c, look);
	if (likely(!look_drops(found))) {
		set_pass(v, found == LOOK_HIT ? USE_HIT : USE_UNTOUCHED, id, number, slot);
		count_rule(id, p->len, p->now);
		return 1;
	}
	__builtin_memset(v, 0, sizeof(*v));
	v->reason = look_reason(found);
	v->id = id;
	v->number = number;
	v->slot = slot;
	return 1;
}
