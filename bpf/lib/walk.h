// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The walk through the rules, docs/design/0003-evaluation.md section 3, as a step machine: the
// verifier checks one step, and a bounded loop takes as many as the rules need. What one step
// leaves for the next lies in struct pkt.
#pragma once

#include "action.h"
#include "verdict_cache.h"

enum { MAX_STEPS = 1 << 23 };

// mix is program.Mix.
__always_inline __u32 mix(__u32 random, __u32 slot)
{
	__u32 x = random ^ slot * 0x9e3779b9;
	x ^= x >> 16;
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	return x ^ x >> 16;
}

__always_inline int asked(struct pkt *p, __u32 flow)
{
	return p->looked[flow >> 6 & 3] >> (flow & 63) & 1;
}

__always_inline void record_lookup(struct pkt *p, __u32 flow)
{
	p->looked[flow >> 6 & 3] |= 1ULL << (flow & 63);
}

// ask looks one flow name up, unless this packet has done so.
__always_inline int ask(struct pkt *p, __u32 flow)
{
	if (asked(p, flow))
		return LOOK_MISS;
	record_lookup(p, flow);
	p->lookups++;
	int r = look_up(flow);
	if (r != LOOK_MISS)
		p->have[flow >> 6 & 3] |= 1ULL << (flow & 63);
	return r;
}

// ask_any looks up all flow names in the order of the Program, until one is not a miss.
__noinline int ask_any(__u32 flows)
{
	struct cpu *c = this_cpu();
	if (!c)
		return LOOK_MISS;
	struct pkt *p = &c->p;
	struct header *h = header_of(p);
	if (!h)
		return LOOK_MISS;
	for (__u32 i = 0; i < 256 && i < flows; i++) {
		int r = ask(p, h->flow[i]);
		if (r != LOOK_MISS)
			return r;
	}
	p->any_asked = 1;
	return LOOK_MISS;
}

// need gives the rule in p->slot the state that it needs: the one found, or a new one. It returns 0
// or the reason why there is none.
__always_inline int need(struct pkt *p, struct code *r)
{
	__u32 flow = r->flow;

	if (!asked(p, flow)) {
		__u32 slot = p->slot;
		int look = ask(p, flow);
		if (look == LOOK_HIT)
			p->v.state = USE_HIT;
		else if (look == LOOK_UNTOUCHED)
			p->v.state = USE_UNTOUCHED;
		else if (look >= LOOK_DROP)
			return look - LOOK_DROP; // p->slot is that of the state's rule
		p->slot = slot;
	}
	if (p->have[flow >> 6 & 3] >> (flow & 63) & 1)
		return 0;
	if (unlikely(is_icmp(p) && !p->is_error && !asks(p->version, p->icmp_type)))
		return r->state == STATE_LIMIT || r->state == STATE_SET_LIMIT ? REASON_NO_KEY : 0;
	int why = create_state(p->slot);
	if (!why) {
		p->v.state = USE_NEW;
		p->have[flow >> 6 & 3] |= 1ULL << (flow & 63);
	}
	return why;
}

// look_first does a rule's look-up. It returns STEP_DONE after a drop; p->mode shows whether the
// state's rule takes over.
__always_inline int look_first(struct pkt *p, void *image, struct header *h, struct code *r)
{
	__u32 slot = p->slot;
	int look;

	if (r->flow == ANY_FLOW || !asked(p, r->flow))
		p->pure = 0;
	if (r->flow == ANY_FLOW)
		look = p->any_asked ? LOOK_MISS : ask_any(h->flows);
	else
		look = ask(p, r->flow);
	if (look == LOOK_MISS) {
		p->slot = slot;
		return STEP_CONTINUE;
	}
	if (look >= LOOK_DROP) {
		struct code *owner = code_in(image, p->slot);
		if (owner)
			decide(p, owner, 0, look - LOOK_DROP);
		return STEP_DONE;
	}
	p->v.state = look == LOOK_HIT ? USE_HIT : USE_UNTOUCHED;
	p->mode = MODE_ACT;
	return STEP_CONTINUE;
}

// advance_to finds the next rule to visit. It returns 0 when there is none, which the default rule
// prevents.
__always_inline int advance_to(struct pkt *p, struct header *h)
{
	__u32 looking = !p->later && p->lookups < h->lookups;
	__u64 left = p->pc / 64 == p->word ? p->all & ~0ULL << (p->pc & 63) : 0;

	if (!left) {
		if (p->pc / 64 == p->word)
			p->pc = (p->pc & ~63) + 64;
		if (!next_word(p, h, looking))
			return 0;
		if (p->word != p->pc / 64)
			p->pc = p->word * 64;
		left = p->all & ~0ULL << (p->pc & 63);
		if (!left)
			return 0;
	}
	__u32 bit = lowest(left);
	p->slot = p->word * 64 + bit;
	p->matched = p->match >> bit & 1;
	p->pc = p->slot + 1;
	return 1;
}

__always_inline int step_next(struct pkt *p, void *image, struct header *h)
{
	if (!advance_to(p, h))
		return STEP_DONE;
	struct code *r = code_in(image, p->slot);
	if (!r)
		return STEP_DONE;
	if (r->flags & CODE_PROB)
		p->pure = 0;
	if (r->flags & CODE_PROB && mix(p->random, p->slot) >= r->prob)
		return STEP_CONTINUE;
	if (p->later && !(r->flags & CODE_FRAG) && p->slot + 1 != h->rules)
		return STEP_CONTINUE;
	if (r->state >= STATE_CHECK && r->state <= STATE_LIMIT) {
		if (look_first(p, image, h, r) == STEP_DONE)
			return STEP_DONE;
		if (p->mode == MODE_ACT || r->state == STATE_CHECK)
			return STEP_CONTINUE;
	}
	if (!p->matched)
		return STEP_CONTINUE;
	p->cond = r->cond;
	p->cond_end = r->cond_end;
	p->entry = 0;
	p->clause = 0;
	p->mode = r->cond < r->cond_end ? MODE_COND : r->state ? MODE_MATCHED : MODE_ACT;
	return STEP_CONTINUE;
}

// step_cond tests one condition, or one entry of its pool.
__always_inline int step_cond(struct pkt *p, void *image, struct header *h)
{
	__u32 n = p->cond;
	struct row *row = row_in(image, h->conds + n / ROW_CONDS);
	if (!row)
		return STEP_DONE;
	__u8 flags = ((struct cond *)row)[n % ROW_CONDS].flags;
	int v = p->clause ? COND_IS_TRUE : test(n);
	if (v == COND_MORE) {
		p->entry++;
		return STEP_CONTINUE;
	}
	p->entry = 0;
	if (!p->clause && v != (flags & COND_NOT ? 1 : 0))
		p->clause = 1;
	if (!(flags & COND_OR) || n + 1 == p->cond_end) {
		if (!p->clause) {
			p->mode = MODE_NEXT;
			return STEP_CONTINUE;
		}
		p->clause = 0;
	}
	p->cond = n + 1;
	if (p->cond == p->cond_end)
		p->mode = MODE_MATCHED;
	return STEP_CONTINUE;
}

__always_inline int step_matched(struct pkt *p, void *image, struct header *h)
{
	struct code *r = code_in(image, p->slot);
	if (!r)
		return STEP_DONE;
	p->mode = MODE_ACT;
	if (!r->state)
		return STEP_CONTINUE;
	int why = need(p, r);
	if (why) {
		struct code *owner = code_in(image, p->slot);
		if (owner)
			decide(p, owner, 0, why);
		return STEP_DONE;
	}
	if (r->flags & CODE_DEFER)
		p->mode = MODE_NEXT;
	return STEP_CONTINUE;
}

__always_inline int step_act(struct pkt *p, void *image, struct header *h)
{
	struct code *r = code_in(image, p->slot);
	return r ? apply_action(p, h, r) : STEP_DONE;
}

static long one_step(__u32 index, void *unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return STEP_DONE;
	struct pkt *p = &c->p;
	void *image = image_of(p);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h)
		return STEP_DONE;
	// Most rules are done in one step.
	if (p->mode == MODE_NEXT && step_next(p, image, h) == STEP_DONE)
		return STEP_DONE;
	if (p->mode == MODE_COND && step_cond(p, image, h) == STEP_DONE)
		return STEP_DONE;
	if (p->pure && p->mode >= MODE_MATCHED)
		verdict_store(p->slot);
	if (p->mode == MODE_MATCHED && step_matched(p, image, h) == STEP_DONE)
		return STEP_DONE;
	return p->mode == MODE_ACT ? step_act(p, image, h) : STEP_CONTINUE;
}

// walk runs the rules over the current packet.
__always_inline void walk(void)
{
	bpf_loop(MAX_STEPS, one_step, NULL, 0);
}
