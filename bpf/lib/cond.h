// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Residual conditions: what the vectors do not decide. One call tests one condition, or one entry
// of its pool.
#pragma once

#include "classify.h"

enum { COND_IS_FALSE, COND_IS_TRUE, COND_MORE };

static __always_inline int in_range(const struct walk *walk, void *image, struct header *h,
				    struct cond *c, __u32 v)
{
	__u32 n = c->a + walk->entry;

	if (walk->entry >= c->n)
		return COND_IS_FALSE;
	struct row *r = row_in(image, h->ranges + n / ROW_RANGES);
	if (!r)
		return COND_IS_FALSE;
	struct range *g = &((struct range *)r)[n % ROW_RANGES];
	return v >= g->lo && v <= g->hi ? COND_IS_TRUE : COND_MORE;
}

static __always_inline struct span *prefix_at(void *image, struct header *h, __u32 n)
{
	struct row *r = row_in(image, h->prefixes + n / ROW_SPANS);
	return r ? &((struct span *)tested(r))[n % ROW_SPANS] : NULL;
}

static __always_inline int in_prefix(const struct packet *p, const struct walk *walk, void *image,
				     struct header *h, struct cond *c, __u64 hi, __u64 lo)
{
	if (walk->entry >= c->n)
		return COND_IS_FALSE;
	struct span *s = prefix_at(image, h, c->a + walk->entry);
	if (!s)
		return COND_IS_FALSE;
	int low = s->lo_hi < hi || (s->lo_hi == hi && s->lo_lo <= lo);
	int high = hi < s->hi_hi || (hi == s->hi_hi && lo <= s->hi_lo);
	// ::/0 holds the mapped addresses too, but no IPv6 prefix holds an IPv4 address.
	int four = !s->lo_hi && s->lo_lo >> 32 == MAPPED;
	return low && high && four == (p->version == 4) ? COND_IS_TRUE : COND_MORE;
}

static __always_inline int is_address(__u32 ifindex, __u64 hi, __u64 lo)
{
	struct iface_address k = {};

	k.ifindex = ifindex;
	k.addr.hi = hi;
	k.addr.lo = lo;
	return bpf_map_lookup_elem(&addresses, &k) != NULL;
}

static __always_inline void trie_key(struct table_key *k, __u8 version, __u64 hi, __u64 lo)
{
	__u32 words[6] = {160, version, be64(hi), be64(hi) >> 32, be64(lo), be64(lo) >> 32};

	__builtin_memcpy(k, words, sizeof(*k));
}

// is_mine: an address of the host, or one to which a local route leads. The map networks holds the
// prefixes of these, with a 1 behind the family.
__noinline int is_mine(__u32 version, __u64 hi, __u64 lo)
{
	struct config *cf = settings();

	if (is_address(0, hi, lo))
		return 1;
	if (likely(!cf || !cf->local))
		return 0;
	struct table_key k;
	trie_key(&k, version, hi, lo);
	k.family[1] = 1;
	return bpf_map_lookup_elem(&networks, &k) != NULL;
}

// own_bit is the bit of an address in config.own, from 0 to 255. ownBits in Go does the same.
static __always_inline __u32 own_bit(__u64 hi, __u64 lo)
{
	return (hi * 3 ^ lo) * GOLDEN >> 56;
}

// may_be_own: the source may be an address of the host. With 0 it certainly is not.
static __always_inline int may_be_own(struct config *cf, __u64 hi, __u64 lo)
{
	__u32 bit = own_bit(hi, lo);

	return cf->own[bit >> 6 & 3] >> (bit & 63) & 1;
}

// is_own_source: a source may be an address of the host, and has to be checked. A prefix to which a
// local route leads sets all of config.own: it is looked up then.
static __always_inline int is_own_source(struct config *cf, __u8 version, __u64 hi, __u64 lo)
{
	return unlikely(may_be_own(cf, hi, lo)) && (!cf->local || is_mine(version, hi, lo));
}

static __always_inline int in_table(const struct packet *p, struct cond *c, __u64 hi, __u64 lo)
{
	struct table_key k;
	__u32 id = c->a;
	void *trie = bpf_map_lookup_elem(&tables, &id);

	if (!trie)
		return 0;
	trie_key(&k, p->version, hi, lo);
	__u32 *v = bpf_map_lookup_elem(trie, &k);
	return v && (c->n != 1 || *v == c->b);
}

static __always_inline int on_interface(void *image, struct header *h, struct cond *c, __u32 kind,
					__u32 ifindex, const struct iface *f)
{
	__u32 half = h->parity & 1;

	if (kind == COND_RECV_ANY - COND_RECV)
		return ifindex != 0;
	if (!ifindex)
		return 0;
	if (kind == 0)
		return f->name[half] == c->a + 1;
	if (kind == COND_RECV_GLOB - COND_RECV)
		return f->globs[half] >> (c->a & 63) & 1;
	struct span *s = prefix_at(image, h, c->a);
	return s ? is_address(ifindex, s->lo_hi, s->lo_lo) : 0;
}

static __always_inline __u32 frag_bits(const struct packet *p)
{
	return (p->frag & FRAG_LATER ? FRAGBIT_OFFSET : 0) | (p->frag & FRAG_MF ? FRAGBIT_MF : 0) |
	       (p->frag & FRAG_DF ? FRAGBIT_DF : 0) | (p->frag & FRAG_RF ? FRAGBIT_RF : 0);
}

// test_source_path: as in ipfw, true for outgoing packets and for those without an incoming
// interface.
static __always_inline int test_source_path(const struct packet *p, __u32 op)
{
	struct table_key k;

	if (p->dir != DIR_IN || !p->recv)
		return 1;
	trie_key(&k, p->version, p->src_hi, p->src_lo);
	if (op == COND_ANTI_SPOOF) {
		struct connected *n = bpf_map_lookup_elem(&networks, &k);
		if (!n || n->more)
			return 1;
		for (int i = 0; i < MAX_CONNECTED; i++) {
			if (n->ifindex[i] == p->recv)
				return 1;
		}
		return 0;
	}
	struct route *r = bpf_map_lookup_elem(&routes, &k);
	if (!r || r->flags & ROUTE_BLACKHOLE)
		return 0;
	return op == COND_VER_REV_PATH ? r->ifindex == p->recv : !(r->flags & ROUTE_DEFAULT);
}

static __always_inline int tagged(const struct walk *walk, void *image, struct header *h,
				  struct cond *c)
{
	__u32 n = c->a + walk->entry;

	if (walk->entry >= c->n)
		return COND_IS_FALSE;
	struct row *r = row_in(image, h->ranges + n / ROW_RANGES);
	if (!r)
		return COND_IS_FALSE;
	struct range *g = &((struct range *)r)[n % ROW_RANGES];
	for (__u32 i = 0; i < MAX_TAGS; i++) {
		if (i < walk->tags && walk->tag_list[i] >= g->lo && walk->tag_list[i] <= g->hi)
			return COND_IS_TRUE;
	}
	return COND_MORE;
}

// record_read records what a condition asks about. A condition on anything outside struct traits
// keeps the packet's verdict out of the cache.
static __always_inline void record_read(struct walk *walk, __u8 op)
{
	if ((op >= COND_SEQ && op <= COND_FRAG) || (op >= COND_TTL && op <= COND_TAGGED))
		walk->cacheable = 0;
	else if (op == COND_SRC_IN || op == COND_SRC_ME || op == COND_SRC_TABLE ||
		 op >= COND_VER_REV_PATH)
		walk->reads |= READ_SRC;
	else if (op == COND_SRC_PORT)
		walk->reads |= READ_SPORT;
}

// The conditions by kind, in the order of enum cond_op. test_ends: version, protocol, addresses and
// ports.
static __always_inline int test_ends(const struct packet *p, const struct walk *walk, void *image,
				     struct header *h, struct cond *c)
{
	switch (c->op) {
	case COND_TRUE:
		return 1;
	case COND_VERSION:
		return p->version == c->a;
	case COND_PROTO:
		return p->proto == c->a;
	case COND_SRC_IN:
		return in_prefix(p, walk, image, h, c, p->src_hi, p->src_lo);
	case COND_DST_IN:
		return in_prefix(p, walk, image, h, c, p->dst_hi, p->dst_lo);
	case COND_SRC_ME:
		return (c->a != 6 || p->version == 6) && is_mine(p->version, p->src_hi, p->src_lo);
	case COND_DST_ME:
		return (c->a != 6 || p->version == 6) && is_mine(p->version, p->dst_hi, p->dst_lo);
	case COND_SRC_TABLE:
		return in_table(p, c, p->src_hi, p->src_lo);
	case COND_DST_TABLE:
		return in_table(p, c, p->dst_hi, p->dst_lo);
	case COND_SRC_PORT:
		return has_ports(p) ? in_range(walk, image, h, c, p->ports >> 16) : 0;
	case COND_DST_PORT:
		return has_ports(p) ? in_range(walk, image, h, c, p->ports & 0xffff) : 0;
	}
	return 0;
}

// test_interface: the direction and the interfaces.
static __always_inline int test_interface(const struct packet *p, const struct walk *walk,
					  void *image, struct header *h, struct cond *c)
{
	__u32 xmit = p->dir == DIR_OUT ? p->xmit : 0;

	switch (c->op) {
	case COND_IN:
		return p->dir == DIR_IN;
	case COND_OUT:
		return p->dir == DIR_OUT;
	case COND_RECV:
	case COND_RECV_GLOB:
	case COND_RECV_ANY:
	case COND_RECV_ADDR:
		return on_interface(image, h, c, c->op - COND_RECV, p->recv, &walk->recv_if);
	case COND_XMIT:
	case COND_XMIT_GLOB:
	case COND_XMIT_ANY:
	case COND_XMIT_ADDR:
		return on_interface(image, h, c, c->op - COND_XMIT, xmit, &walk->xmit_if);
	case COND_VIA:
	case COND_VIA_GLOB:
	case COND_VIA_ANY:
	case COND_VIA_ADDR:
		if (p->dir == DIR_IN)
			return on_interface(image, h, c, c->op - COND_VIA, p->recv, &walk->recv_if);
		return on_interface(image, h, c, c->op - COND_VIA, xmit, &walk->xmit_if);
	}
	return 0;
}

// test_tcp: fields of a TCP header.
static __always_inline int test_tcp(const struct packet *p, const struct walk *walk, void *image,
				    struct header *h, struct cond *c)
{
	int tcp = p->proto == PROTO_TCP && !(p->frag & FRAG_LATER);

	switch (c->op) {
	case COND_FLAGS:
		return tcp && (p->tcp_flags & c->b) == c->a;
	case COND_ESTAB:
		return tcp && p->tcp_flags & (TH_RST | TH_ACK);
	case COND_SEQ:
		return tcp && p->seq == c->a;
	case COND_ACK:
		return tcp && p->ack == c->a;
	case COND_WIN:
		return tcp ? in_range(walk, image, h, c, p->window) : 0;
	}
	return 0;
}

// test_rest: other fields, tags and routes.
static __always_inline int test_rest(const struct packet *p, const struct walk *walk, void *image,
				     struct header *h, struct cond *c)
{
	switch (c->op) {
	case COND_FRAG:
		return (frag_bits(p) & c->b) == c->a;
	case COND_ICMP_TYPE:
		return p->version == 4 && is_icmp(p) ? in_range(walk, image, h, c, p->icmp_type) :
						       0;
	case COND_ICMP6_TYPE:
		return p->version == 6 && is_icmp(p) ? in_range(walk, image, h, c, p->icmp_type) :
						       0;
	case COND_TTL:
		return in_range(walk, image, h, c, p->ttl);
	case COND_LEN:
		return in_range(walk, image, h, c, p->len);
	case COND_ID:
		return p->version == 4 ? in_range(walk, image, h, c, p->ip_id) : 0;
	case COND_IP_OPTIONS:
		return p->version == 4 && (p->ip_options & c->b) == c->a;
	case COND_TOS:
		return p->version == 4 && (p->tos & c->b) == c->a;
	case COND_DSCP:
		return ((__u64)c->b << 32 | c->a) >> (p->tos >> 2) & 1;
	case COND_PRECEDENCE:
		return p->version == 4 && p->tos >> 5 == c->a;
	case COND_TAGGED:
		return tagged(walk, image, h, c);
	case COND_VER_REV_PATH:
	case COND_VER_SRC_REACH:
	case COND_ANTI_SPOOF:
		return test_source_path(p, c->op);
	}
	return 0;
}

// test_cond tests condition n, entry walk->entry of its pool, without its not.
__noinline int test_cond(struct cpu *cpu, __u32 n)
{
	if (!cpu)
		return 0;
	const struct packet *p = &cpu->packet;
	struct walk *walk = &cpu->walk;
	void *image = image_of(walk);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	struct row *row = h ? row_in(image, h->conds + n / ROW_CONDS) : NULL;
	if (!row)
		return 0;
	struct cond *c = &((struct cond *)row)[n % ROW_CONDS];

	record_read(walk, c->op);
	if (c->op <= COND_DST_PORT)
		return test_ends(p, walk, image, h, c);
	if (c->op <= COND_VIA_ADDR)
		return test_interface(p, walk, image, h, c);
	if (c->op <= COND_WIN)
		return test_tcp(p, walk, image, h, c);
	return test_rest(p, walk, image, h, c);
}
