// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The classifier: program.Classifier in the image. A dimension gives a class, a class a vector with
// one bit per slot; the AND of the vectors holds the rules whose baked conditions are true.
#pragma once

#include "parse.h"

// class_of_span finds an IPv6 address among the sorted spans, which cover everything.
__always_inline __u32 class_of_span(struct pkt *p, void *image, __u32 first, __u32 n, __u64 hi,
				    __u64 lo)
{
	p->span = 0;
	for (int i = 14; i >= 0; i--) {
		__u32 at = READ_ONCE(p->span) + (1 << i);
		if (at >= n)
			continue;
		struct row *r = row_in(image, first + at / ROW_SPANS);
		if (!r)
			return 0;
		struct span *s = &((struct span *)r)[at % ROW_SPANS];
		if (s->lo_hi < hi || (s->lo_hi == hi && s->lo_lo <= lo))
			WRITE_ONCE(p->span, at);
	}
	struct row *r = row_in(image, first + p->span / ROW_SPANS);
	return r ? ((struct span *)r)[p->span % ROW_SPANS].hi_hi : 0;
}

__always_inline __u32 word_of(void *image, __u32 first, __u32 index)
{
	struct row *r = row_in(image, first + index / ROW_U32);
	return r ? ((__u32 *)r)[below(index, ROW_U32)] : 0;
}

__always_inline __u32 half_of(void *image, __u32 first, __u32 index)
{
	struct row *r = row_in(image, first + index / ROW_U16);
	return r ? ((__u16 *)r)[below(index, ROW_U16)] : 0;
}

__always_inline __u32 class_of_address(struct pkt *p, void *image, struct header *h, __u32 side,
				       __u64 hi, __u64 lo)
{
	side &= 1;
	if (p->version == 6)
		return class_of_span(p, image, h->spans[side], h->nspans[side], hi, lo);
	__u32 a = lo, v = word_of(image, h->root[side], a >> 16);
	if (v & DIR_BLOCK) {
		v = word_of(image, h->blocks[side], (v & ~DIR_BLOCK) * 256 + (a >> 8 & 255));
		if (v & DIR_BLOCK)
			v = word_of(image, h->blocks[side], (v & ~DIR_BLOCK) * 256 + (a & 255));
	}
	return v;
}

__always_inline int has_ports(struct pkt *p)
{
	__u8 proto = p->proto;
	return !(p->frag & FRAG_LATER) && (proto == PROTO_TCP || proto == PROTO_UDP ||
					   proto == PROTO_SCTP || proto == PROTO_UDPLITE);
}

// classify sets p->class_of: in dimensions in which no two rules differ there is one class, 0.
__noinline int classify(__u32 dims)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct pkt *p = &c->p;
	void *image = image_of(p);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h)
		return 0;
	__u8 later = p->frag & FRAG_LATER ? 2 : 0;
	int ports = has_ports(p);

	for (int i = 0; i < NUM_DIMS; i++)
		p->class_of[i] = 0;
	if (dims & 1 << DIM_SRC)
		p->class_of[DIM_SRC] = class_of_address(p, image, h, 0, p->src_hi, p->src_lo);
	if (dims & 1 << DIM_DST)
		p->class_of[DIM_DST] = class_of_address(p, image, h, 1, p->dst_hi, p->dst_lo);
	if (dims & 1 << DIM_SPORT)
		p->class_of[DIM_SPORT] =
			half_of(image, h->ports[0], ports ? p->ports >> 16 : NO_PORT);
	if (dims & 1 << DIM_DPORT)
		p->class_of[DIM_DPORT] =
			half_of(image, h->ports[1], ports ? p->ports & 0xffff : NO_PORT);
	if (dims & 1 << DIM_PROTO)
		p->class_of[DIM_PROTO] = half_of(
			image, h->small, SMALL_PROTO + p->proto + (p->version == 6 ? 256 : 0));
	if (dims & 1 << DIM_FLAGS)
		p->class_of[DIM_FLAGS] = half_of(
			image, h->small,
			SMALL_FLAGS + (p->proto == PROTO_TCP && !later ? p->tcp_flags : NO_FLAGS));
	if (dims & 1 << DIM_HOOK)
		p->class_of[DIM_HOOK] = half_of(image, h->small, SMALL_HOOK + (p->dir & 1) + later);
	if (dims & 1 << DIM_ICMP)
		p->class_of[DIM_ICMP] =
			half_of(image, h->small + 1,
				is_icmp(p) ? p->icmp_type + (p->version == 6 ? 256 : 0) : NO_ICMP);
	return 0;
}

// vector_of returns the row in which the k-th dimension's vector lies.
__always_inline __u64 *vector_of(struct pkt *p, void *image, __u32 k)
{
	return (__u64 *)bpf_map_lookup_elem(image, &p->vector_row[k]);
}

// find_vectors records in which rows the packet's vectors lie and where they begin there. (A
// dimension in which no two rules differ has one class.)
__noinline int find_vectors(__u32 dims)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct pkt *p = &c->p;
	void *image = image_of(p);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h)
		return 0;
	classify(dims);
	p->blocks = ~0U;
	p->look_blocks = h->look_blocks;
	for (__u32 k = 0; k < NUM_DIMS; k++) {
		__u32 d = h->order[k] & 7, class = p->class_of[d], shift = h->shift & 15;
		if (h->sums[d]) {
			__u32 sum = word_of(image, h->sums[d], class);
			WRITE_ONCE(p->blocks, READ_ONCE(p->blocks) & sum);
		}
		p->vector_at[k] = (class & ((1 << shift) - 1)) << ((8 - shift) & 7);
		p->vector_row[k] = h->vectors[d] + (class >> shift);
	}
	p->look_row = h->look;
	p->words = h->words;
	p->classified = 1;
	return 0;
}

// found_word records the candidates of a word: slots to visit, and those of them whose vectors all
// match.
__always_inline void found_word(struct pkt *p, __u32 w, __u64 all, __u64 match)
{
	p->word = w;
	p->all = all;
	p->match = match;
}

// seek moves p->pc to the first word at or after it that may hold a candidate, or behind all of
// them. Where a block turns out to hold none, the words after it are looked at one by one.
__noinline int seek(__u64 looking)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct pkt *p = &c->p;
	__u32 block = p->pc / 64 / BLOCK;
	__u64 left = (p->blocks | (p->look_blocks & looking)) >> (block & 31);

	if (!(left & 1))
		p->pc = left ? (block + lowest(left)) * BLOCK * 64 : ROW_U64 * 64;
	return 0;
}

// next_of_4 and next_of_8 AND the first 4 or all 8 vectors, word by word from p->pc on. There is
// one branch per word, so that the verifier's work is the number of words, and not more than that.
__noinline int next_of_4(__u64 looking)
{
	struct cpu *c = this_cpu();
	void *image = c ? image_of(&c->p) : NULL;
	if (!c || !image)
		return 0;
	struct pkt *p = &c->p;
	__u64 *v0, *v1, *v2, *v3, *look;
	if (!(v0 = vector_of(p, image, 0)) || !(v1 = vector_of(p, image, 1)) ||
	    !(v2 = vector_of(p, image, 2)) || !(v3 = vector_of(p, image, 3)) ||
	    !(look = (__u64 *)bpf_map_lookup_elem(image, &p->look_row)))
		return 0;
	__u32 a0 = p->vector_at[0], a1 = p->vector_at[1], a2 = p->vector_at[2],
	      a3 = p->vector_at[3];
	__u32 w = p->pc / 64, words = p->words;
	__u64 mask = ~0ULL << (p->pc & 63);

	for (int i = 0; i < ROW_U64 && w < words; i++, w++) {
		__u64 match = v0[(a0 + w) & 255] & v1[(a1 + w) & 255] & v2[(a2 + w) & 255] &
			      v3[(a3 + w) & 255];
		__u64 all = match | (look[w & 255] & looking);
		if (all & mask) {
			found_word(p, w, all, match);
			return 1;
		}
		mask = ~0ULL;
	}
	return 0;
}

__noinline int next_of_8(__u64 looking)
{
	struct cpu *c = this_cpu();
	void *image = c ? image_of(&c->p) : NULL;
	if (!c || !image)
		return 0;
	struct pkt *p = &c->p;
	__u64 *v0, *v1, *v2, *v3, *v4, *v5, *v6, *v7, *look;
	if (!(v0 = vector_of(p, image, 0)) || !(v1 = vector_of(p, image, 1)) ||
	    !(v2 = vector_of(p, image, 2)) || !(v3 = vector_of(p, image, 3)) ||
	    !(v4 = vector_of(p, image, 4)) || !(v5 = vector_of(p, image, 5)) ||
	    !(v6 = vector_of(p, image, 6)) || !(v7 = vector_of(p, image, 7)) ||
	    !(look = (__u64 *)bpf_map_lookup_elem(image, &p->look_row)))
		return 0;
	__u32 a0 = p->vector_at[0], a1 = p->vector_at[1], a2 = p->vector_at[2],
	      a3 = p->vector_at[3];
	__u32 a4 = p->vector_at[4], a5 = p->vector_at[5], a6 = p->vector_at[6],
	      a7 = p->vector_at[7];
	__u32 w = p->pc / 64, words = p->words;
	__u64 mask = ~0ULL << (p->pc & 63);

	for (int i = 0; i < ROW_U64 && w < words; i++, w++) {
		__u64 match = v0[(a0 + w) & 255] & v1[(a1 + w) & 255] & v2[(a2 + w) & 255] &
			      v3[(a3 + w) & 255] & v4[(a4 + w) & 255] & v5[(a5 + w) & 255] &
			      v6[(a6 + w) & 255] & v7[(a7 + w) & 255];
		__u64 all = match | (look[w & 255] & looking);
		if (all & mask) {
			found_word(p, w, all, match);
			return 1;
		}
		mask = ~0ULL;
	}
	return 0;
}

// next_word moves p->word to the first word at or after p->pc that holds a candidate: a rule whose
// vectors all match or, while `looking`, one that looks states up. It returns 0 if there is none.
__always_inline int next_word(struct pkt *p, struct header *h, int looking)
{
	if (!p->classified)
		find_vectors(h->dims);
	if (h->words > BLOCK)
		seek(looking ? ~0ULL : 0);
	return h->active <= 4 ? next_of_4(looking ? ~0ULL : 0) : next_of_8(looking ? ~0ULL : 0);
}
