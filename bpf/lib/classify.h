// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The classifier: program.Classifier in the image. A dimension gives a class, a class a vector with
// one bit per slot; the AND of the vectors holds the rules whose baked conditions are true.
#pragma once

#include "hash.h"
#include "parse.h"

// class_of_span finds an IPv6 address among the sorted spans, which cover everything.
static __always_inline __u32 class_of_span(struct scratch *scratch, void *image, __u32 first,
					   __u32 n, __u64 hi, __u64 lo)
{
	scratch->span = 0;
	for (int i = 14; i >= 0; i--) {
		__u32 at = READ_ONCE(scratch->span) + (1 << i);
		if (at >= n)
			continue;
		struct row *r = row_in(image, first + at / ROW_SPANS);
		if (!r)
			return 0;
		struct span *s = &((struct span *)r)[at % ROW_SPANS];
		if (s->lo_hi < hi || (s->lo_hi == hi && s->lo_lo <= lo))
			WRITE_ONCE(scratch->span, at);
	}
	struct row *r = row_in(image, first + scratch->span / ROW_SPANS);
	return r ? ((struct span *)r)[scratch->span % ROW_SPANS].hi_hi : 0;
}

static __always_inline __u32 image_u32(void *image, __u32 first, __u32 index)
{
	struct row *r = row_in(image, first + index / ROW_U32);
	return r ? ((__u32 *)r)[below(index, ROW_U32)] : 0;
}

static __always_inline __u32 image_u16(void *image, __u32 first, __u32 index)
{
	struct row *r = row_in(image, first + index / ROW_U16);
	return r ? ((__u16 *)r)[below(index, ROW_U16)] : 0;
}

static __always_inline __u32 class_of_address(const struct packet *p, struct scratch *scratch,
					      void *image, struct header *h, __u32 side, __u64 hi,
					      __u64 lo)
{
	side &= 1;
	if (p->version == 6)
		return class_of_span(scratch, image, h->spans[side], h->nspans[side], hi, lo);
	__u32 a = lo, v = image_u32(image, h->root[side], a >> 16);
	if (v & DIR_BLOCK) {
		v = image_u32(image, h->blocks[side], (v & ~DIR_BLOCK) * 256 + (a >> 8 & 255));
		if (v & DIR_BLOCK)
			v = image_u32(image, h->blocks[side], (v & ~DIR_BLOCK) * 256 + (a & 255));
	}
	return v;
}

static __always_inline int has_ports(const struct packet *p)
{
	__u8 proto = p->proto;
	return !(p->frag & FRAG_LATER) && (proto == PROTO_TCP || proto == PROTO_UDP ||
					   proto == PROTO_SCTP || proto == PROTO_UDPLITE);
}

// classify sets walk->class_of: in dimensions in which no two rules differ there is one class, 0.
__noinline int classify(struct cpu *c, __u32 dims)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	struct scratch *scratch = &c->scratch;
	void *image = image_of(walk);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h)
		return 0;
	__u8 later = p->frag & FRAG_LATER ? 2 : 0;
	int ports = has_ports(p);

	for (int i = 0; i < NUM_DIMS; i++)
		walk->class_of[i] = 0;
	if (dims & 1 << DIM_SRC)
		walk->class_of[DIM_SRC] =
			class_of_address(p, scratch, image, h, 0, p->src_hi, p->src_lo);
	if (dims & 1 << DIM_DST)
		walk->class_of[DIM_DST] =
			class_of_address(p, scratch, image, h, 1, p->dst_hi, p->dst_lo);
	if (dims & 1 << DIM_SPORT)
		walk->class_of[DIM_SPORT] =
			image_u16(image, h->ports[0], ports ? p->ports >> 16 : NO_PORT);
	if (dims & 1 << DIM_DPORT)
		walk->class_of[DIM_DPORT] =
			image_u16(image, h->ports[1], ports ? p->ports & 0xffff : NO_PORT);
	if (dims & 1 << DIM_PROTO)
		walk->class_of[DIM_PROTO] = image_u16(
			image, h->small, SMALL_PROTO + p->proto + (p->version == 6 ? 256 : 0));
	if (dims & 1 << DIM_FLAGS)
		walk->class_of[DIM_FLAGS] = image_u16(
			image, h->small,
			SMALL_FLAGS + (p->proto == PROTO_TCP && !later ? p->tcp_flags : NO_FLAGS));
	if (dims & 1 << DIM_HOOK)
		walk->class_of[DIM_HOOK] =
			image_u16(image, h->small, SMALL_HOOK + (p->dir & 1) + later);
	if (dims & 1 << DIM_ICMP)
		walk->class_of[DIM_ICMP] = image_u16(
			image, h->small + 1,
			is_icmp(p) ? p->icmp_type + (p->version == 6 ? 256 : 0) : NO_ICMP);
	return 0;
}

// vector_of returns the row in which the k-th dimension's vector lies.
static __always_inline __u64 *vector_of(struct walk *walk, void *image, __u32 k)
{
	return (__u64 *)row_in(image, walk->vector_row[k]);
}

// find_vectors records in which rows the packet's vectors lie and where they begin there. (A
// dimension in which no two rules differ has one class.)
__noinline int find_vectors(struct cpu *c, __u32 dims)
{
	if (!c)
		return 0;
	struct walk *walk = &c->walk;
	void *image = image_of(walk);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h)
		return 0;
	classify(c, dims);
	walk->blocks = ~0U;
	walk->look_blocks = h->look_blocks;
	for (__u32 k = 0; k < NUM_DIMS; k++) {
		__u32 d = h->order[k] & 7, class = walk->class_of[d], shift = h->shift & 15;
		if (h->sums[d]) {
			__u32 sum = image_u32(image, h->sums[d], class);
			WRITE_ONCE(walk->blocks, READ_ONCE(walk->blocks) & sum);
		}
		walk->vector_at[k] = (class & ((1 << shift) - 1)) << ((8 - shift) & 7);
		walk->vector_row[k] = h->vectors[d] + (class >> shift);
	}
	walk->look_row = h->look;
	walk->words = h->words;
	walk->classified = 1;
	return 0;
}

// found_word records the candidates of a word: slots to visit, and those of them whose vectors all
// match.
static __always_inline void found_word(struct walk *walk, __u32 w, __u64 all, __u64 match)
{
	walk->word = w;
	walk->all = all;
	walk->match = match;
}

// seek moves walk->pc to the first word at or after it that may hold a candidate, or behind all of
// them. Where a block turns out to hold none, the words after it are looked at one by one.
__noinline int seek(struct cpu *c, __u64 looking)
{
	if (!c)
		return 0;
	struct walk *walk = &c->walk;
	__u32 block = walk->pc / 64 / BLOCK;
	__u64 left = (walk->blocks | (walk->look_blocks & looking)) >> (block & 31);

	if (!(left & 1))
		walk->pc = left ? (block + lowest(left)) * BLOCK * 64 : ROW_U64 * 64;
	return 0;
}

// vector_word returns a word of the k-th dimension's vector.
static __always_inline __u64 vector_word(const __u64 *vector, __u32 at, __u32 w)
{
	return vector[(at + w) & (ROW_U64 - 1)];
}

// next_of ANDs the first 4 vectors, or all 8, word by word from walk->pc on, to the first word with
// a candidate. There is one branch per word, so that the verifier's work is the number of words,
// and not more than that. The vectors are variables of their own and no array: that lies in
// registers.
static __always_inline int next_of(struct cpu *c, int all8, __u64 looking)
{
	void *image = c ? image_of(&c->walk) : NULL;
	if (!c || !image)
		return 0;
	struct walk *walk = &c->walk;
	__u64 *v0, *v1, *v2, *v3, *v4 = NULL, *v5 = NULL, *v6 = NULL, *v7 = NULL, *look;
	if (!(v0 = vector_of(walk, image, 0)) || !(v1 = vector_of(walk, image, 1)) ||
	    !(v2 = vector_of(walk, image, 2)) || !(v3 = vector_of(walk, image, 3)))
		return 0;
	if (all8 && (!(v4 = vector_of(walk, image, 4)) || !(v5 = vector_of(walk, image, 5)) ||
		     !(v6 = vector_of(walk, image, 6)) || !(v7 = vector_of(walk, image, 7))))
		return 0;
	if (!(look = (__u64 *)row_in(image, walk->look_row)))
		return 0;
	const __u32 *at = walk->vector_at;
	__u32 a0 = at[0], a1 = at[1], a2 = at[2], a3 = at[3];
	__u32 a4 = at[4], a5 = at[5], a6 = at[6], a7 = at[7];
	__u32 w = walk->pc / 64, words = walk->words;
	__u64 mask = ~0ULL << (walk->pc & 63);

	for (int i = 0; i < ROW_U64 && w < words; i++, w++) {
		__u64 match = vector_word(v0, a0, w) & vector_word(v1, a1, w) &
			      vector_word(v2, a2, w) & vector_word(v3, a3, w);
		if (all8)
			match &= vector_word(v4, a4, w) & vector_word(v5, a5, w) &
				 vector_word(v6, a6, w) & vector_word(v7, a7, w);
		__u64 all = match | (vector_word(look, 0, w) & looking);
		if (all & mask) {
			found_word(walk, w, all, match);
			return 1;
		}
		mask = ~0ULL;
	}
	return 0;
}

// Most rule sets differ in four dimensions or fewer.
__noinline int next_of_4(struct cpu *c, __u64 looking)
{
	return next_of(c, 0, looking);
}

__noinline int next_of_all(struct cpu *c, __u64 looking)
{
	return next_of(c, 1, looking);
}

// next_word moves walk->word to the first word at or after walk->pc that holds a candidate: a rule
// whose vectors all match or, while `looking`, one that looks states up. It returns 0 if there is
// none.
static __always_inline int next_word(struct cpu *c, struct walk *walk, struct header *h,
				     int looking)
{
	if (!walk->classified)
		find_vectors(c, h->dims);
	if (h->words > BLOCK)
		seek(c, looking ? ~0ULL : 0);
	return h->active <= 4 ? next_of_4(c, looking ? ~0ULL : 0) :
				next_of_all(c, looking ? ~0ULL : 0);
}
