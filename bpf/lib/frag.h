// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Fragments, docs/design/0003-evaluation.md section 6: later fragments follow the verdict of the
// first one.
#pragma once

#include "walk.h"

static __always_inline void frag_key(const struct packet *p, struct header *h, struct frag_key *k)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->src.hi = p->src_hi;
	k->src.lo = p->src_lo;
	k->dst.hi = p->dst_hi;
	k->dst.lo = p->dst_lo;
	k->id = p->ip_id;
	k->serial = h->serial;
	k->recv = p->recv;
	k->xmit = p->xmit;
	k->proto = p->version == 4 ? p->proto : 0;
	k->dir = p->dir;
}

// refusal_key makes of the key of a first fragment that under which its refusal is recorded: that
// of the later ones, which follow no translation then.
static __always_inline void refusal_key(const struct nat *nat, struct frag_key *k)
{
	if (likely(!nat->translated))
		return;
	k->src.hi = nat->before.src_hi;
	k->src.lo = nat->before.src_lo;
	k->dst.hi = nat->before.dst_hi;
	k->dst.lo = nat->before.dst_lo;
	k->xmit = 0;
	k->dir = DIR_IN;
}

// record_fragment records the verdict on a first fragment, in place of that on an earlier datagram
// with its identification.
__noinline int record_fragment(struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct packet *p = &c->packet;
	const struct walk *walk = &c->walk;
	const struct verdict *v = &c->verdict;
	struct header *h = header_of(walk);
	if (!h)
		return 0;
	struct frag_key k;
	struct frag f = {};
	frag_key(p, h, &k);
	f.until = p->now + cf->life_frag;
	f.end = p->frag_end;
	f.rule = v->number ? v->id : 0;
	f.pass = v->pass;
	f.next_hop = walk->next_hop;
	if (v->pass) {
		bpf_map_update_elem(&frags, &k, &f, BPF_ANY);
		refusal_key(&c->nat, &k);
		bpf_map_delete_elem(&refused_frags, &k);
	} else {
		bpf_map_delete_elem(&frags, &k);
		refusal_key(&c->nat, &k);
		bpf_map_update_elem(&refused_frags, &k, &f, BPF_ANY);
	}
	return 0;
}

// continue_fragment lets the rules behind one with nat decide about a later fragment, as they did
// about the first, which that rule translated. One without that translation is dropped.
static __always_inline void continue_fragment(struct cpu *c, const struct code *r, __u32 slot)
{
	struct walk *walk = &c->walk;

	if (!walk->awaits_nat || !has_nat(&c->nat, r)) {
		c->verdict.pass = 0;
		c->verdict.reason = REASON_FRAG_UNKNOWN;
		return;
	}
	walk->resume = slot + 1;
	walk->depth = 0;
	walk->jumps = 0;
}

// follow_fragment gives a later fragment the verdict of the first. It returns 0 if there is none.
__noinline int follow_fragment(struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	struct header *h = header_of(walk);
	if (!h)
		return 0;
	struct frag_key k;
	frag_key(p, h, &k);
	struct frag *f = bpf_map_lookup_elem(&refused_frags, &k);
	if (!f || p->now > f->until) {
		f = bpf_map_lookup_elem(&frags, &k);
		if (!f || p->now > f->until)
			return 0;
	}
	if (p->frag_off < f->end)
		f->poisoned = 1;
	v->pass = 0;
	if (f->poisoned) {
		v->reason = REASON_FRAG_OVERLAP;
		return 1;
	}
	v->pass = f->pass;
	walk->next_hop = f->next_hop;
	v->reason = REASON_FRAG_FIRST;
	struct maybe slot = f->rule ? slot_of(walk, h, f->rule) : NONE;
	struct code *r = exists(slot) ? code_of(walk, number(slot)) : NULL;
	if (r) {
		v->number = r->number;
		v->id = r->id;
		v->slot = number(slot);
		if (r->action == ACT_NAT) {
			walk->nat = r->arg & (NAT_CONTINUES - 1);
			if (r->arg & NAT_CONTINUES)
				continue_fragment(c, r, number(slot));
		}
	}
	return 1;
}

// charge_fragment takes the bytes of a later fragment from the pipe of the rule that has let the
// first one pass, and counts the fragment for that rule.
static __always_inline void charge_fragment(struct cpu *c, const struct packet *p,
					    const struct walk *walk, struct verdict *v)
{
	struct code *r = v->number ? code_of(walk, v->slot) : NULL;
	if (!r)
		return;
	int why = v->pass && r->flags & CODE_PIPE ? take_pipe(c, v->slot) : 0;
	if (why) {
		v->pass = 0;
		v->reason = why;
		return;
	}
	count_rule(v->id, p->len, p->now);
}
