// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path, which takes most packets: IPv4 without options, or IPv6 without extension headers,
// in one piece, TCP or UDP, of a flow whose state is established and whose rule lets it pass; or
// the first packet of a UDP flow whose rule is cached. It decodes only what that needs and keeps it
// in registers. It leaves everything else, unchanged, to the slow path. For the packets that the
// fast path takes the slow path decides the same.
#pragma once

#include "evaluate.h"

// What the fast path needs of a packet. Nothing in it points into the packet, so the verifier's
// paths of both families and both protocols meet again.
struct brief {
	__u64 a_hi, a_lo, b_hi, b_lo; // source and destination
	// the first words of the transport header; what a UDP datagram has there means nothing
	__u32 ports, seq, ack, bits;
	__u32 len, rest; // of the packet, and of it behind the IP header
};

enum {
	FAST_TCP = SIDE_SEEN | SIDE_ACKED,
	NOT_FAST_TCP = SIDE_FIN | SIDE_RST | META_HALF_OPEN
};

// Both check the tag again, at `at`, just before they write: between the look-up and here, waiting
// for cold lines, a CPU can lose its time slice, and another flow can take the entry.

// fast_udp counts a packet of a live state. META_PEER shows which lifetime the state has, without a
// load of the other side. It may be missing although the other end has answered, so without it the
// shorter lifetime counts.
__always_inline int fast_udp(struct config *cf, struct side *d, __s64 now, __u32 len, __u64 *at,
			     __u64 tag)
{
	__u32 flags = d->flags;
	__s64 life = cf->life_udp_reply;

	if (!(flags & META_PEER) && cf->life_udp < life)
		life = cf->life_udp;
	if (!(flags & SIDE_SEEN) || unproved(flags) || calls_port(flags) || now > d->last + life ||
	    !same_tag(READ_ONCE(*at), tag))
		return 0;
	d->last = now;
	d->packets++;
	d->bytes += len;
	return 1;
}

// fast_tcp moves an established connection by a segment without SYN, FIN and RST: points 7 and 8
// of docs/design/0003-evaluation.md section 8.
__always_inline int fast_tcp(struct config *cf, struct side *d, struct side *o, struct brief *t,
			     __s64 now, __u64 *at, __u64 tag)
{
	__u32 mine = READ_ONCE(d->flags), peer = READ_ONCE(o->flags), any = mine | peer;

	if ((t->bits >> 16 & (TH_SYN | TH_FIN | TH_RST | TH_ACK)) != TH_ACK ||
	    now > d->last + cf->life_established)
		return 0;
	if ((mine & peer & FAST_TCP) != FAST_TCP || any & NOT_FAST_TCP || !(any & SIDE_PROVED) ||
	    calls_port(mine))
		return 0;
	__u32 header = t->bits >> 28 << 2, seq = t->seq, ack = t->ack;
	if (header < 20 || header > t->rest)
		return 0;
	__u32 end = seq + t->rest - header, edge = READ_ONCE(o->edge), sent = READ_ONCE(o->end);
	if (before(edge, seq) || before(edge + 1, end) ||
	    before(end, READ_ONCE(d->end) - max32(o->win, SLACK)))
		return 0;
	if (before(sent, ack) || before(ack, sent - max32(d->win, SLACK)) ||
	    !same_tag(READ_ONCE(*at), tag))
		return 0;
	__u32 scale = mine & peer & SIDE_SCALED ? mine >> 8 & 15 : 0;
	__u32 win = (t->bits & 0xffff) << scale;
	raise(&d->end, end);
	if (d->win < win)
		d->win = win;
	raise(&d->ack, ack);
	raise(&d->edge, ack + win);
	d->last = now;
	d->packets++;
	d->bytes += t->len;
	return 1;
}

// fast_find looks for the state with this tag and these ends among the entries of set n, and sets
// p->place.
__always_inline int fast_find(struct pkt *p, struct tag_line *t, __u32 n, __u64 tag,
			      struct brief *e)
{
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 have = READ_ONCE(t->tag[i]);
		if (same_tag(have, tag)) {
			// the entry is read after the tag that published it
			__u32 in = n + depends_on(have);
			struct set *s = set_at(in);
			if (s && s->addr[i].low_lo == e->a_lo && s->addr[i].high_lo == e->b_lo &&
			    s->addr[i].low_hi == e->a_hi && s->addr[i].high_hi == e->b_hi) {
				p->place = in * WAYS + i;
				return 1;
			}
		}
	}
	return 0;
}

enum { OWNERS = 256 };

// A rule that only counts a packet and lets it pass, cached on each CPU by the id that its states
// hold: a look-up of an image's row is a helper call.
struct owner {
	__u64 when; // config.epoch << 8 | slot of the image; 0 for nothing
	__u32 id;
	__u16 number;
	__u16 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct owner);
} owners SEC(".maps");

// cache_owner caches the rule with an id, if it is such a rule.
__noinline int cache_owner(__u32 id)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u32 at = id % OWNERS;
	struct owner *o = bpf_map_lookup_elem(&owners, &at);
	if (!c || !cf || !o)
		return 0;
	struct pkt *p = &c->p;
	__u64 when = READ_ONCE(cf->epoch) << 8 | p->current; // before any other read
	void *image = image_of(p);
	struct code *r = image ? owner_of(p, image, id) : NULL;
	if (!r || r->action != ACT_ALLOW || r->tag || r->flags & CODE_LOG)
		return 0;
	o->when = when;
	o->id = id;
	o->number = r->number;
	o->slot = p->slot;
	return 1;
}

// fast_rule returns the cached rule with an id, or NULL if that does more than let a packet pass.
__always_inline struct owner *fast_rule(struct pkt *p, struct config *cf, __u32 id)
{
	__u32 at = id % OWNERS;
	struct owner *o = bpf_map_lookup_elem(&owners, &at);

	if (o && (o->id != id || o->when != (READ_ONCE(cf->epoch) << 8 | p->current)) &&
	    !cache_owner(id))
		return NULL;
	return o;
}

// passes counts the packet for a rule that lets it pass, and sets the verdict.
__always_inline void passes(struct pkt *p, __u8 state, __u32 id, __u16 number, __u16 slot)
{
	count_rule(p, id);
	__builtin_memset(&p->v, 0, sizeof(p->v));
	p->v.state = state;
	p->v.pass = 1;
	p->v.number = number;
	p->v.id = id;
	p->v.slot = slot;
}

// fast_cached evaluates a packet by the verdict cache, where the rules keep no states.
__always_inline int fast_cached(struct pkt *p, struct traits *k, __u32 current, __u32 len)
{
	if (p->tags)
		return 0;
	k->recv = p->recv;
	k->xmit = p->xmit;
	struct cached_verdict *m = verdict_find(k, current >> CURRENT_READS);
	if (!m || !(m->slot & CACHED_PLAIN))
		return 0;
	p->current = current & CURRENT_SLOT;
	p->len = len;
	passes(p, USE_NONE, m->id, m->number, m->slot & CACHED_SLOT);
	return 1;
}

// duplicates counts the entries of the two sets of p->hash that have the identity of p->tag,
// claimed or live: one is ours. It compares the lower halves of tags, so about one in some hundred
// times another flow counts as a duplicate. There is no branch: where ours lies is hard to predict.
__always_inline __u32 duplicates(struct pkt *p, struct tag_line *a, struct tag_line *b)
{
	__u64 n = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 in_a = ((__u32)READ_ONCE(a->tag[i]) ^ (__u32)p->tag) & (__u32)TAG_IDENTITY,
		      in_b = ((__u32)READ_ONCE(b->tag[i]) ^ (__u32)p->tag) & (__u32)TAG_IDENTITY;
		opaque(in_a); // or the compiler makes branches of it
		opaque(in_b);
		n += ((in_a - 1) >> 63) + ((in_b - 1) >> 63);
	}
	return a == b ? n / 2 : n;
}

// fast_new evaluates the first packet of a UDP flow, which fast_established has described in p, if
// the verdict cache holds the rule that will make its state and a state may be made. It reports
// whether it did.
//
// Its cost is cold memory, so the order counts: first all reads, then all atomic operations, which
// wait for them, and last the entry, of which nothing is read. Where the processor keeps stores in
// order, the last of them publishes the entry, and nothing here waits for its lines. So it looks
// for duplicates while the entry is only claimed: of two claims, which are atomic, the later one
// sees the earlier. A CPU that sees another claim gives its own up and takes the slow path, which
// settles it.
__noinline int fast_new(__u32 reads)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u32 zero = 0;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);
	if (!c || !cf || !g)
		return 0;
	struct pkt *p = &c->p;
	struct tag_line *a = tags_at(first_set(p->hash, cf->sets)),
			*b = tags_at(second_set(p->hash, cf->sets));
	if (!a || !b)
		return 0;
	find_spare(p, cf->sets, a, b);
	struct traits k;
	traits_of(&k, p, READ_ONCE(cf->epoch));
	struct cached_verdict *m = verdict_find(&k, reads);
	if (!m || !(m->slot & CACHED_KEEP) || p->tags || !p->spare)
		return 0;
	__s64 half_open = g->half_open;
	if (unlikely(half_open - g->answered >= cf->max_half_open / COOKIES_FROM))
		begin_cookies(g, cf);
	__u32 full = half_open >= cf->max_half_open, old = full ? victim(p, cf, a, b) : 0;
	if ((full && !old) || g->states + c->pending - full >= cf->max_states)
		return 0;
	__u64 source = source_hash(cf, p->src_hi, p->src_lo);
	if (unlikely(enter_source(cf, source) >= cf->source_from)) {
		leave_source(cf, source);
		return 0;
	}
	__u32 claimed = (!full || evict_at(old - 1, GONE_RECLAIMED)) &&
			claim_spare(p, fast_claim(p->tag)),
	      place = p->place;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	if (unlikely(!claimed || !s || !t || duplicates(p, a, b) != 1)) {
		if (claimed)
			unclaim(p, place);
		leave_source(cf, source);
		return 0;
	}
	count_new(c, cf);
	p->track = 0;
	fill(p, s, place, m->id, 0, PROTO_UDP);
	// look-ups read the entry after the tag
	store_release(&t->tag[place % WAYS], p->tag | TAG_HALF_OPEN, cf->in_order);
	passes(p, USE_NEW, m->id, m->number, m->slot & CACHED_SLOT);
	return 1;
}

enum { FAST_NOT, FAST_DONE, FAST_NEW };

// fast_established evaluates the packet of skb if it is simple enough and belongs to a flow with a
// state, or the rules look no state up: FAST_DONE, and the packet passes. FAST_NEW: fast_new may be
// tried.
__noinline int fast_established(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u8 *b = (__u8 *)(long)skb->data, *end = (__u8 *)(long)skb->data_end;
	if (!c || !cf)
		return 0;
	struct pkt *p = &c->p;
	__u32 current = READ_ONCE(cf->current), flow = current_flow(current);
	int four;

	if (l2) {
		if (b + 14 > end ||
		    (*(__u16 *)(b + 12) != be16(ETH_IP) && *(__u16 *)(b + 12) != be16(ETH_IPV6)))
			return 0;
		four = *(__u16 *)(b + 12) == be16(ETH_IP);
		b += 14;
	} else {
		four = b + 1 > end || b[0] >> 4 == 4;
	}
	struct brief e = {};
	__u8 proto, *t;
	if (four) {
		if (b + 40 > end || b[0] != 0x45 || *(__u16 *)(b + 6) & be16(0x3fff))
			return 0;
		e.len = get16(b + 2);
		e.rest = e.len - 20;
		proto = b[9];
		e.a_lo = (__u64)MAPPED << 32 | get32(b + 12);
		e.b_lo = (__u64)MAPPED << 32 | get32(b + 16);
		t = b + 20;
	} else {
		if (b + 60 > end || b[0] >> 4 != 6)
			return 0;
		e.rest = get16(b + 4);
		e.len = e.rest + 40;
		proto = b[6];
		e.a_hi = get64(b + 8);
		e.a_lo = get64(b + 16);
		e.b_hi = get64(b + 24);
		e.b_lo = get64(b + 32);
		if (is_mapped(e.a_hi, e.a_lo) || is_mapped(e.b_hi, e.b_lo))
			return 0;
		t = b + 40;
	}
	e.ports = get32(t);
	e.seq = get32(t + 4);
	e.ack = get32(t + 8);
	e.bits = get32(t + 12);
	// a negative length is a large number
	if (e.len > skb->len - (l2 ? 14 : 0) || e.rest > 0xffff)
		return 0;
	if (proto == PROTO_UDP) {
		if (e.rest < 8 || e.seq >> 16 < 8 || e.seq >> 16 > e.rest || dhcp_ports(e.ports))
			return 0;
	} else if (proto != PROTO_TCP || e.rest < 20) {
		return 0;
	}
	if (!flow) {
		struct traits k = {.when = READ_ONCE(cf->epoch) << 8 | (current & CURRENT_SLOT),
				   .ports = e.ports,
				   .proto = proto,
				   .kind = (four ? 4 : 6) << 4 | p->dir};
		k.src_hi = e.a_hi;
		k.src_lo = e.a_lo;
		k.dst_hi = e.b_hi;
		k.dst_lo = e.b_lo;
		if (proto == PROTO_TCP) {
			__u32 header = e.bits >> 28 << 2;
			if (header < 20 || header > e.rest)
				return 0;
			k.tcp_flags = e.bits >> 16;
		}
		return fast_cached(p, &k, current, e.len);
	}
	__u32 ports = e.ports;
	int swap = e.a_hi != e.b_hi ? e.a_hi > e.b_hi :
		   e.a_lo != e.b_lo ? e.a_lo > e.b_lo :
				      ports >> 16 > (ports & 0xffff);
	if (swap) {
		__u64 hi = e.a_hi, lo = e.a_lo;
		e.a_hi = e.b_hi;
		e.a_lo = e.b_lo;
		e.b_hi = hi;
		e.b_lo = lo;
		ports = ports << 16 | ports >> 16;
	}
	__u64 names = (__u64)ports << 32 | (__u32)proto << 24 | (flow - 1) << 16;
	__u64 hash = hash5(cf->seed, e.a_hi, e.a_lo, e.b_hi, e.b_lo, names);
	__u64 tag = tag_of(names, hash);
	__u32 an = first_set(hash, cf->sets), bn = second_set(hash, cf->sets);
	struct tag_line *a = tags_at(an), *o = tags_at(bn);
	if (!a || !o)
		return 0;
	if (!p->unknown)
		prefetch(an, hash);
	struct tag_line *line = a;
	int found = fast_find(p, a, an, tag, &e);
	if (!found) {
		line = o;
		found = fast_find(p, o, bn, tag, &e);
	}
	if (!found) {
		p->unknown = 1;
		if (unlikely(link_local(e.a_hi, e.a_lo, e.b_hi, e.b_lo)))
			return 0; // their keys also hold the link
		p->hash = hash;
		p->tag = tag;
		p->spare = 0;
		p->missed = flow;
		if (proto == PROTO_TCP)
			return scout(cf->sets);
		p->key.low_hi = e.a_hi;
		p->key.low_lo = e.a_lo;
		p->key.high_hi = e.b_hi;
		p->key.high_lo = e.b_lo;
		p->src_hi = swap ? e.b_hi : e.a_hi;
		p->src_lo = swap ? e.b_lo : e.a_lo;
		p->dst_hi = swap ? e.a_hi : e.b_hi;
		p->dst_lo = swap ? e.a_lo : e.b_lo;
		p->from = swap;
		p->ports = e.ports;
		p->len = e.len;
		p->version = four ? 4 : 6;
		p->proto = PROTO_UDP;
		p->tcp_flags = 0;
		p->current = current & CURRENT_SLOT;
		return FAST_NEW;
	}
	p->unknown = 0;
	__u32 place = READ_ONCE(p->place);
	struct set *s = set_at(place / WAYS);
	if (!s)
		return 0;
	struct side *mine = swap ? high_side(s, place) : low_side(s, place),
		    *peer = swap ? low_side(s, place) : high_side(s, place);
	p->current = current & CURRENT_SLOT;
	struct owner *r = fast_rule(p, cf, mine->rule);
	if (!r)
		return 0;
	__s64 now = p->now;
	__u64 *at = &line->tag[place & (WAYS - 1)];
	if (proto == PROTO_UDP ? !fast_udp(cf, mine, now, e.len, at, tag) :
				 !fast_tcp(cf, mine, peer, &e, now, at, tag))
		return 0;
	p->len = e.len;
	passes(p, USE_HIT, r->id, r->number, r->slot);
	return 1;
}

// fast_path evaluates the packet of skb if it can, and reports whether it did. The packet then
// passes. It calls its two parts one after the other: nested, their stacks would be too deep.
__always_inline int fast_path(struct __sk_buff *skb, struct config *cf, __u32 l2)
{
	int r = fast_established(skb, l2);
	struct cpu *c = this_cpu();

	// The slow path checks a source that may be the host's own.
	if (r == FAST_NEW && c && c->p.dir == DIR_IN &&
	    unlikely(perhaps_own(cf, c->p.src_hi, c->p.src_lo)))
		return 0;
	return r == FAST_NEW ? fast_new(READ_ONCE(cf->current) >> CURRENT_READS) : r;
}
