// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fast path takes most of the packets that struct fast_packet describes. These are packets of a
// flow with a state whose rule lets them pass, and packets without a state whose rule is cached. It
// decodes only what it needs, for established flows into registers. It leaves all other packets to
// the slow path. The slow path decides the same about each packet that the fast path takes. Here
// are established flows; fast_decide.h has the others.
#pragma once

#include "fast_decode.h"
#include "fast_describe.h"
#include "rule_cache.h"

enum {
	FAST_TCP = SIDE_SEEN | SIDE_ACKED,
	NOT_FAST_TCP = SIDE_FIN | SIDE_RST | META_HALF_OPEN | META_REDEEMED
};

// fast_udp and fast_tcp check the tag again, at `at`, just before they write. While a CPU waits for
// cold lines it can lose its time slice. Then another flow can take the entry.

// fast_udp counts a packet of a live state. META_PEER shows which lifetime the state has, without a
// load of the other side. It may be missing although the other end has answered, so without it the
// shorter lifetime counts.
static __always_inline int fast_udp(struct config *cf, struct side *d, __s64 now, __u32 len,
				    __u64 *at, __u64 tag)
{
	__u32 flags = d->flags;
	__s64 life = cf->life_udp_reply;

	if (!(flags & META_PEER) && cf->life_udp < life)
		life = cf->life_udp;
	if (!(flags & SIDE_SEEN) || unproved(flags) || from_port_client(flags) ||
	    now > d->last + life || !same_tag(READ_ONCE(*at), tag))
		return 0;
	count_side(d, now, len);
	return 1;
}

// fast_tcp advances an established connection by a segment without SYN, FIN and RST: points 7 and 8
// of docs/design/0003-evaluation.md section 8.
static __always_inline int fast_tcp(struct config *cf, struct side *d, struct side *o,
				    const struct fast_packet *t, __s64 now, __u64 *at, __u64 tag)
{
	__u32 mine = READ_ONCE(d->flags), peer = READ_ONCE(o->flags), any = mine | peer;

	if ((fast_tcp_flags(t) & (TH_SYN | TH_FIN | TH_RST | TH_ACK)) != TH_ACK ||
	    now > d->last + cf->life_established)
		return 0;
	if ((mine & peer & FAST_TCP) != FAST_TCP || any & NOT_FAST_TCP || !(any & SIDE_PROVED) ||
	    from_port_client(mine))
		return 0;
	__u32 seq = t->seq, ack = t->ack;
	if (!whole_segment(t))
		return 0;
	__u32 end = seq + t->rest - fast_tcp_header(t);
	if (in_window(d, o, READ_ONCE(o->edge), seq, end, ack) != RES_HIT ||
	    !same_tag(READ_ONCE(*at), tag))
		return 0;
	__u32 scale = mine & peer & SIDE_SCALED ? mine >> 8 & 15 : 0;
	__u32 win = fast_tcp_window(t) << scale;
	raise_sent(d, end, win);
	raise_acked(d, ack, win);
	count_side(d, now, t->len);
	return 1;
}

// fast_stateless evaluates a packet that was described by the verdict cache, where the rules keep
// no states. It reports whether it evaluated the packet.
__noinline int fast_stateless(struct cpu *c)
{
	struct config *cf = settings();
	struct gauge *g = gauges_now();
	if (!c || !cf || !g)
		return 0;
	const struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	__u32 current = READ_ONCE(cf->current);

	// Before the rules the slow path redeems SYN cookies.
	if (walk->tags || (p->dir == DIR_IN && p->proto == PROTO_TCP && unlikely(g->cookies)))
		return 0;
	walk->current = current_slot(current);
	struct traits k;
	traits_of(&k, p, walk, READ_ONCE(cf->epoch));
	struct cached_verdict *m = verdict_find(&k, current_reads(current));
	return m && by_cached_rule(c, cf, m);
}

// fast_missed follows a look-up without success. It hands the packet to fast_new with its hash and
// tag. The high end is the sender if `from` is 1.
static __always_inline int fast_missed(struct cpu *c, struct packet *p, struct lookup *look,
				       struct walk *walk, struct config *cf,
				       const struct fast_packet *e, const struct key *k, int from,
				       __u32 current)
{
	look->spare = NONE;
	look->missed = current_flow(current);
	if (e->proto == PROTO_TCP && !whole_segment(e))
		return find_spare_noinline(c, cf->sets);
	look->key.low_hi = k->low_hi;
	look->key.low_lo = k->low_lo;
	look->key.high_hi = k->high_hi;
	look->key.high_lo = k->high_lo;
	fast_describe(p, e);
	fast_describe_ends(p, look, k, from);
	walk->current = current_slot(current);
	return FAST_NEW;
}

// fast_established evaluates the packet that e describes if it is simple enough, and belongs to a
// flow with a state. FAST_DONE: it passes, and there is no event to report. FAST_NOT: the slow path
// decides, also about packets of a state without the flags `need`. In all other cases it has
// described the packet in c, and fast_stateless (FAST_STATELESS) or fast_decide may be tried. The
// rule counts a packet that passes `times` times, once for each hook that it need not visit any
// more. Only weir_evaluate needs the verdict, v.
static __always_inline int fast_established(struct cpu *c, struct config *cf,
					    const struct fast_packet *e, __u32 need, __u32 times,
					    struct verdict *v)
{
	if (e->proto == PROTO_UDP && dhcp_ports(e->ports))
		return FAST_NOT;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	__u32 current = READ_ONCE(cf->current);
	struct maybe flow = current_flow(current);

	if (!exists(flow)) {
		if (e->proto == PROTO_TCP && !whole_segment(e))
			return FAST_NOT;
		fast_describe(p, e);
		p->src_hi = e->src_hi;
		p->src_lo = e->src_lo;
		p->dst_hi = e->dst_hi;
		p->dst_lo = e->dst_lo;
		return FAST_STATELESS;
	}
	struct key k = {.proto = e->proto, .flow = number(flow)};
	int from = order_ends(&k, e->src_hi, e->src_lo, e->dst_hi, e->dst_lo, e->ports);
	// A key with a link-local end holds the link, in bits that an address of a packet may have,
	// too. The high end is not below fe80:: if either is such an end.
	if (unlikely(k.high_hi >= LINK_LOCAL) && (is_local6(k.low_hi) || is_local6(k.high_hi)))
		return FAST_NOT;
	__u64 names = names_of(&k), hash = hash_of(cf, &k, names), tag = tag_of(names, hash);
	__u32 n = first_set(hash, cf->sets);
	struct tag_line *line = tags_at(n);
	if (!line)
		return FAST_NOT;
	if (!look->unknown)
		prefetch(n, hash);
	int found = find_home(look, line, n, hash, &k, tag) || find_in(look, line, n, &k, tag);
	if (!found) {
		n = second_set(hash, cf->sets);
		line = tags_at(n);
		if (!line)
			return FAST_NOT;
		found = find_in(look, line, n, &k, tag);
	}
	if (!found) {
		look->unknown = 1;
		if (unlikely(link_local(k.low_hi, k.low_lo, k.high_hi, k.high_lo)))
			return FAST_NOT; // their keys also hold the link
		look->hash = hash;
		look->tag = tag;
		return fast_missed(c, p, look, walk, cf, e, &k, from, current);
	}
	look->unknown = 0;
	__u32 place = READ_ONCE(look->place);
	struct set *s = set_at(place / WAYS);
	if (!s)
		return FAST_NOT;
	struct side *mine = from ? high_side(s, place) : low_side(s, place),
		    *peer = from ? low_side(s, place) : high_side(s, place);
	walk->current = current_slot(current);
	if ((READ_ONCE(mine->flags) & need) != need)
		return FAST_NOT;
	struct cached_rule *r = find_cached_rule(c, cf, mine->rule, current_slot(current));
	if (!r)
		return FAST_NOT;
	__u64 *at = &line->tag[place & (WAYS - 1)];
	if (e->proto == PROTO_UDP) {
		if (!fast_udp(cf, mine, p->now, e->len, at, tag))
			return FAST_NOT;
	} else if (!fast_tcp(cf, mine, peer, e, p->now, at, tag)) {
		look->tag = tag;
		c->verdict.id = r->id;
		c->verdict.number = r->number;
		c->verdict.slot = r->slot;
		fast_describe(p, e);
		fast_describe_ends(p, look, &k, from);
		// A segment behind one that has redeemed a cookie may have to open the connection.
		return whole_segment(e) && !(mine->flags & (META_PUBLISHED | META_REDEEMED)) ?
			       FAST_STEP :
			       FAST_NOT;
	}
	if (v) {
		p->len = e->len;
		set_pass(v, USE_HIT, r->id, r->number, r->slot);
	}
	count_rule_times(r->id, e->len, p->now, times);
	return FAST_DONE;
}
