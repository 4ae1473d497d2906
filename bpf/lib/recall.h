// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the rules said of a packet is remembered, on each CPU, for the packets that look the same to
// them: which rule is the first that matches. It holds for as long as nothing has changed that
// rules ask about (config.epoch), and only where nothing else was asked than what lies in struct
// memo: no state, no chance, no field that differs from packet to packet. What the rule then does,
// it does for each packet anew.
#pragma once

#include "cond.h"

enum { MEMOS = 1024 };
// In memo.slot: the rule does no more than to count a packet and let it pass, or than that and to
// keep a state under the flow name that the first rule looks up.
enum { MEMO_PLAIN = 1 << 15, MEMO_KEEP = 1 << 14, MEMO_SLOT = MAX_RULES - 1 };

// How packets look to the rules. A source address or port that no rule has asked about is 0.
struct traits {
	__u64 when; // config.epoch << 8 | slot of the image; 0 for nothing
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u32 ports, recv, xmit;
	__u8 proto, tcp_flags, icmp_type, kind; // kind: version << 4 | direction
};

struct memo {
	struct traits traits;
	__u32 id; // of the first rule that matches
	__u16 number;
	__u16 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MEMOS);
	__type(key, __u32);
	__type(value, struct memo);
} memos SEC(".maps");

// memo_for returns where packets that look so are remembered.
__always_inline struct memo *memo_for(struct traits *k)
{
	__u64 rest = (__u64)k->proto << 24 | k->tcp_flags << 16 | k->icmp_type << 8 | k->kind;
	__u64 mixed = k->src_hi ^ k->src_lo * 3 ^ k->dst_hi * 5 ^ k->dst_lo * 7 ^
		      ((__u64)k->ports << 32 | k->recv) * 11 ^ (rest << 32 | k->xmit) * 13;
	__u32 index = mixed * 0x9e3779b97f4a7c15ULL >> 54;

	return bpf_map_lookup_elem(&memos, &index);
}

__always_inline int same_traits(struct traits *a, struct traits *b)
{
	return a->when == b->when && a->dst_lo == b->dst_lo && a->src_lo == b->src_lo &&
	       a->ports == b->ports && a->recv == b->recv && a->dst_hi == b->dst_hi &&
	       a->src_hi == b->src_hi && a->xmit == b->xmit && a->proto == b->proto &&
	       a->tcp_flags == b->tcp_flags && a->icmp_type == b->icmp_type && a->kind == b->kind;
}

// overlook leaves out of k what rules that ask no more than `reads` do not see.
__always_inline void overlook(struct traits *k, __u32 reads)
{
	if (!(reads & READ_SRC))
		k->src_hi = k->src_lo = 0;
	if (!(reads & READ_SPORT))
		k->ports &= 0xffff;
}

// remembered returns what is remembered of packets that look like k: what the vectors alone have
// decided, or else what more was asked for. It changes k.
__always_inline struct memo *remembered(struct traits *k, __u32 reads)
{
	__u32 narrow = reads & READ_ALL, wide = reads >> READ_BITS & READ_ALL;
	struct traits n = *k;
	overlook(&n, narrow);
	struct memo *m = memo_for(&n);
	if (m && same_traits(&m->traits, &n))
		return m;
	if (narrow == wide)
		return NULL;
	overlook(k, wide);
	m = memo_for(k);
	return m && same_traits(&m->traits, k) ? m : NULL;
}

__always_inline void traits_of(struct traits *k, struct pkt *p, __u64 epoch)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->when = epoch << 8 | p->current;
	k->src_hi = p->src_hi;
	k->src_lo = p->src_lo;
	k->dst_hi = p->dst_hi;
	k->dst_lo = p->dst_lo;
	k->ports = p->ports;
	k->recv = p->recv;
	k->xmit = p->xmit;
	k->proto = p->proto;
	k->tcp_flags = p->proto == PROTO_TCP ? p->tcp_flags : 0;
	k->icmp_type = is_icmp(p) ? p->icmp_type : 0;
	k->kind = p->version << 4 | p->dir;
}

// recall returns 1 + the slot of the first rule that matches the packet, which is at the beginning
// of the rules, or 0 if it is not remembered. Then the walk finds out, and p->pure says that it may
// be remembered.
__noinline int recall(__u32 reads)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct pkt *p = &c->p;
	if (p->tags || p->frag & (FRAG_FIRST | FRAG_LATER | FRAG_MF))
		return 0;
	p->epoch = once(cf->epoch); // before anything is asked: what changes from now on raises it
	struct traits k;
	traits_of(&k, p, p->epoch);
	struct memo *m = remembered(&k, reads);
	if (m)
		return (m->slot & MEMO_SLOT) + 1;
	p->pure = 1;
	p->reads = reads & READ_ALL;
	return 0;
}

// memo_kind returns what struct memo says of a rule besides its slot.
__always_inline __u16 memo_kind(struct header *h, struct code *r)
{
	if (r->action != ACT_ALLOW || r->tag || r->flags & (CODE_LOG | CODE_DEFER | CODE_LIBERAL))
		return 0;
	if (!r->state)
		return MEMO_PLAIN;
	return r->state == STATE_KEEP && r->flow + 1 == h->quick ? MEMO_KEEP : 0;
}

// memorize remembers that the rule in a slot is the first that matches packets that look like this
// one.
__noinline int memorize(__u32 slot)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct pkt *p = &c->p;
	struct header *h = header_of(p);
	struct code *r = code_of(p, slot);
	if (!h || !r)
		return 0;
	p->pure = 0;
	struct traits k;
	traits_of(&k, p, p->epoch);
	__u32 narrow = h->reads & READ_ALL;
	overlook(&k, p->reads == narrow ? narrow : h->reads >> READ_BITS & READ_ALL);
	struct memo *m = memo_for(&k);
	if (!m)
		return 0;
	m->traits = k;
	m->id = r->id;
	m->number = r->number;
	m->slot = (slot & MEMO_SLOT) | memo_kind(h, r);
	return 0;
}
