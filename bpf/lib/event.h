// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Events for the agent, through the ring buffer. Each kind costs one test while nothing subscribes
// to it.
#pragma once

#include "hash.h"
#include "key.h"

static __always_inline int event_wanted(struct config *cf, __u32 kind)
{
	return cf->listen >> kind & 1;
}

// describe writes where a packet was evaluated, and the verdict.
static __always_inline void describe(struct event *e, const struct packet *p,
				     const struct verdict *v)
{
	e->recv = p->recv;
	e->xmit = p->xmit;
	e->dir = p->dir;
	e->rule = v->id;
	e->number = v->number;
	e->slot = v->slot;
	e->pass = v->pass;
	e->reason = v->reason;
	e->answer = v->answer;
	e->code = v->code;
	e->state = v->state;
}

enum { RING_AVAILABLE = 0 }; // BPF_RB_AVAIL_DATA
// How much of the ring may be taken when an event is written. Events of refused and captured
// packets, which any host can cause at will, stop at half of it, so that rare events find space.
// The last eighth is reserved for keepalive probes, without which idle connections end.
enum { RING_UNTRUSTED = EVENT_RING / 2, RING_EVENTS = EVENT_RING / 8 * 7 };

// ring_has_space: an event may take space in the ring.
static __always_inline int ring_has_space(__u64 most)
{
	return bpf_ringbuf_query(&events, RING_AVAILABLE) <= most;
}

// event_packet reports the current packet and its verdict.
__noinline int event_packet(struct cpu *c, __u32 kind)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	const struct verdict *v = &c->verdict;
	int refused = kind == EVENT_DROP || kind == EVENT_REFUSE;
	struct event *e = NULL;
	if (ring_has_space(refused ? RING_UNTRUSTED : RING_EVENTS))
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->lost++;
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->time = p->now;
	if (p->version) { // otherwise these are of an earlier packet: refuse
		e->src_hi = p->src_hi;
		e->src_lo = p->src_lo;
		e->dst_hi = p->dst_hi;
		e->dst_lo = p->dst_lo;
		e->ports = p->ports;
		e->tcp_flags = p->tcp_flags;
	}
	e->length = p->len;
	e->proto = p->proto;
	describe(e, p, v);
	e->kind = kind;
	e->version = p->version;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

// event_end reports a state that has ended.
static __always_inline void event_end(struct config *cf, struct cpu *c, struct set *s, __u32 way,
				      __u64 tag)
{
	if (likely(!event_wanted(cf, EVENT_END)))
		return;
	struct event *e = NULL;
	if (ring_has_space(RING_EVENTS))
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->lost++;
		return;
	}
	way &= WAYS - 1;
	struct side *low = &s->side[way * 2], *high = &s->side[way * 2 + 1];
	int turned = !(low->flags & META_MADE);
	__u32 ports = tag >> 32;
	__builtin_memset(e, 0, sizeof(*e));
	e->time = c->packet.now;
	e->src_hi = turned ? s->addr[way].high_hi : s->addr[way].low_hi;
	e->src_lo = turned ? s->addr[way].high_lo : s->addr[way].low_lo;
	e->dst_hi = turned ? s->addr[way].low_hi : s->addr[way].high_hi;
	e->dst_lo = turned ? s->addr[way].low_lo : s->addr[way].high_lo;
	e->ports = turned ? ports << 16 | ports >> 16 : ports;
	e->packets[0] = turned ? high->packets : low->packets;
	e->packets[1] = turned ? low->packets : high->packets;
	e->bytes[0] = turned ? high->bytes : low->bytes;
	e->bytes[1] = turned ? low->bytes : high->bytes;
	e->duration = c->packet.now - low->created;
	e->rule = low->rule;
	e->proto = tag >> 24;
	e->kind = EVENT_END;
	bpf_ringbuf_submit(e, 0);
}

// event_frame hands the first bytes of the frame to the capture, with the verdict.
__noinline int event_frame(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	const struct verdict *v = &c->verdict;
	if (!ring_has_space(RING_UNTRUSTED)) {
		c->lost++;
		return 0;
	}
	struct captured *f = bpf_ringbuf_reserve(&events, sizeof(*f), 0);
	if (!f) {
		c->lost++;
		return 0;
	}
	__builtin_memset(&f->event, 0, sizeof(f->event));
	struct event *e = &f->event;
	e->kind = EVENT_PACKET;
	e->time = bpf_ktime_get_ns();
	e->length = skb->len;
	describe(e, p, v);
	f->l2 = l2;
	__u32 n = skb->len;
	if (n > SNAP)
		n = SNAP;
	if (n == 0 || bpf_skb_load_bytes(skb, 0, f->data, sized(n, SNAP)) < 0)
		n = 0;
	f->size = n;
	bpf_ringbuf_submit(f, 0);
	return 0;
}
