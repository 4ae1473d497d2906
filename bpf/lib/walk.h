// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The walk through the rules, docs/design/0003-evaluation.md section 3, in steps. The verifier
// checks one step, and a bounded loop takes as many as the rules need. What one step leaves for the
// next lies in struct walk.
#pragma once

#include "action.h"
#include "rate.h"
#include "verdict_cache.h"

enum { MAX_STEPS = 1 << 23 };

// mix is program.Mix.
static __always_inline __u32 mix(__u32 random, __u32 slot)
{
	__u32 x = random ^ slot * 0x9e3779b9;
	x ^= x >> 16;
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	return x ^ x >> 16;
}

static __always_inline int was_looked_up(const struct walk *walk, __u32 flow)
{
	return walk->looked[flow >> 6 & 3] >> (flow & 63) & 1;
}

static __always_inline void record_lookup(struct walk *walk, __u32 flow)
{
	walk->looked[flow >> 6 & 3] |= 1ULL << (flow & 63);
}

// look_up_once looks one flow name up, unless this packet has done so.
static __always_inline int look_up_once(struct cpu *c, struct walk *walk, __u32 flow)
{
	if (was_looked_up(walk, flow))
		return LOOK_MISS;
	record_lookup(walk, flow);
	walk->lookups++;
	int r = look_up(c, flow);
	if (r != LOOK_MISS)
		walk->have[flow >> 6 & 3] |= 1ULL << (flow & 63);
	return r;
}

// look_up_any looks up all flow names in the order of the Program, until one is not a miss.
__noinline int look_up_any(struct cpu *c, __u32 flows)
{
	if (!c)
		return LOOK_MISS;
	struct walk *walk = &c->walk;
	struct header *h = header_of(walk);
	if (!h)
		return LOOK_MISS;
	for (__u32 i = 0; i < 256 && i < flows; i++) {
		opaque(walk); // one base in one register: this is in the longest chain of stacks
		int r = look_up_once(c, walk, h->flow[i]);
		if (r != LOOK_MISS)
			return r;
	}
	walk->any_looked_up = 1;
	return LOOK_MISS;
}

// needs_token_or_state: when its conditions are true, the rule still needs a token or a state.
static __always_inline __u32 needs_token_or_state(const struct code *r)
{
	return r->state | (r->flags & CODE_RATE);
}

// use_found records what a look-up has found for a rule. It returns 0, or the reason to drop the
// packet.
static __always_inline int use_found(struct verdict *v, int found)
{
	if (found == LOOK_HIT)
		v->state = USE_HIT;
	else if (found == LOOK_UNTOUCHED)
		v->state = USE_UNTOUCHED;
	else if (look_drops(found))
		return look_reason(found);
	return 0;
}

// OWN_LOOKS take some 30 microseconds: longer than an interrupt.
enum { OWN_LOOKS = 1024 };

static long find_own(__u32 index, void *unused)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();

	return !c || find(c, &c->look, cf);
}

// look_up_own looks a flow name up again, after a state of the same flow has reached the limit of
// its rule: another CPU has the other of its first packets. It waits until that CPU has made the
// state.
__noinline int look_up_own(struct cpu *c, __u32 flow)
{
	if (!c)
		return LOOK_MISS;
	bpf_loop(OWN_LOOKS, find_own, NULL, 0);
	return look_up(c, flow);
}

// get_state gives the rule in walk->slot the state that it needs: the one found, or a new one. It
// returns 0 or the reason why there is none.
static __always_inline int get_state(struct cpu *c, struct code *r)
{
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	__u32 flow = r->flow;

	if (!was_looked_up(walk, flow)) {
		__u32 slot = walk->slot;
		int why = use_found(v, look_up_once(c, walk, flow));
		if (why)
			return why; // walk->slot is that of the state's rule
		walk->slot = slot;
	}
	if (walk->have[flow >> 6 & 3] >> (flow & 63) & 1)
		return 0;
	if (unlikely(is_icmp(p) && !look->is_error && !is_icmp_query(p->version, p->icmp_type)))
		return r->state == STATE_LIMIT || r->state == STATE_SET_LIMIT ? REASON_NO_KEY : 0;
	__u32 slot = walk->slot;
	int why = create_state(c, slot);
	if (unlikely(why == REASON_LIMIT && c->limit.own_flow)) {
		int found = look_up_own(c, flow);
		if (found == LOOK_MISS)
			return why;
		why = use_found(v, found);
		if (why)
			return why;
		walk->slot = slot;
	} else if (!why) {
		v->state = USE_NEW;
	}
	if (!why)
		walk->have[flow >> 6 & 3] |= 1ULL << (flow & 63);
	return why;
}

// look_first does a rule's look-up. It returns STEP_DONE after a drop; walk->mode shows whether the
// state's rule takes over.
static __always_inline int look_first(struct cpu *c, struct walk *walk, struct verdict *v,
				      void *image, struct header *h, struct code *r)
{
	__u32 slot = walk->slot;
	int found;

	if (r->flow == ANY_FLOW || !was_looked_up(walk, r->flow))
		walk->cacheable = 0;
	if (r->flow == ANY_FLOW)
		found = walk->any_looked_up ? LOOK_MISS : look_up_any(c, h->flows);
	else
		found = look_up_once(c, walk, r->flow);
	if (found == LOOK_MISS) {
		walk->slot = slot;
		return STEP_CONTINUE;
	}
	if (look_drops(found)) {
		struct code *state_rule = code_in(image, walk->slot);
		if (state_rule)
			decide(walk, v, state_rule, 0, look_reason(found));
		return STEP_DONE;
	}
	v->state = found == LOOK_HIT ? USE_HIT : USE_UNTOUCHED;
	walk->mode = MODE_ACT;
	return STEP_CONTINUE;
}

// advance_to finds the next rule to visit. It returns 0 when there is none, which the default rule
// prevents.
static __always_inline int advance_to(struct cpu *c, struct walk *walk, struct header *h)
{
	__u32 looking = !walk->later_fragment && walk->lookups < h->lookups;
	__u64 left = walk->pc / 64 == walk->word ? walk->all & ~0ULL << (walk->pc & 63) : 0;

	if (!left) {
		if (walk->pc / 64 == walk->word)
			walk->pc = (walk->pc & ~63) + 64;
		if (!next_word(c, walk, h, looking))
			return 0;
		if (walk->word != walk->pc / 64)
			walk->pc = walk->word * 64;
		left = walk->all & ~0ULL << (walk->pc & 63);
		if (!left)
			return 0;
	}
	__u32 bit = lowest(left);
	walk->slot = walk->word * 64 + bit;
	walk->matched = walk->match >> bit & 1;
	walk->pc = walk->slot + 1;
	return 1;
}

static __always_inline int step_next(struct cpu *c, struct walk *walk, struct verdict *v,
				     void *image, struct header *h)
{
	if (!advance_to(c, walk, h))
		return STEP_DONE;
	struct code *r = code_in(image, walk->slot);
	if (!r)
		return STEP_DONE;
	if (r->flags & CODE_PROB)
		walk->cacheable = 0;
	if (r->flags & CODE_PROB && mix(walk->random, walk->slot) >= r->prob)
		return STEP_CONTINUE;
	if (walk->later_fragment && !(r->flags & CODE_FRAG) && walk->slot + 1 != h->rules)
		return STEP_CONTINUE;
	if (r->state >= STATE_CHECK && r->state <= STATE_LIMIT) {
		if (look_first(c, walk, v, image, h, r) == STEP_DONE)
			return STEP_DONE;
		if (walk->mode == MODE_ACT || r->state == STATE_CHECK)
			return STEP_CONTINUE;
	}
	if (!walk->matched)
		return STEP_CONTINUE;
	walk->cond = r->cond;
	walk->cond_end = r->cond_end;
	walk->entry = 0;
	walk->clause = 0;
	walk->mode = r->cond < r->cond_end   ? MODE_COND :
		     needs_token_or_state(r) ? MODE_MATCHED :
					       MODE_ACT;
	return STEP_CONTINUE;
}

// step_cond tests one condition, or one entry of its pool.
static __always_inline int step_cond(struct cpu *c, struct walk *walk, void *image,
				     struct header *h)
{
	__u32 n = walk->cond;
	struct row *row = row_in(image, h->conds + n / ROW_CONDS);
	if (!row)
		return STEP_DONE;
	__u8 flags = ((struct cond *)row)[n % ROW_CONDS].flags;
	int v = walk->clause ? COND_IS_TRUE : test_cond(c, n);
	if (v == COND_MORE) {
		walk->entry++;
		return STEP_CONTINUE;
	}
	walk->entry = 0;
	if (!walk->clause && v != (flags & COND_NOT ? 1 : 0))
		walk->clause = 1;
	if (!(flags & COND_OR) || n + 1 == walk->cond_end) {
		if (!walk->clause) {
			walk->mode = MODE_NEXT;
			return STEP_CONTINUE;
		}
		walk->clause = 0;
	}
	walk->cond = n + 1;
	if (walk->cond == walk->cond_end)
		walk->mode = MODE_MATCHED;
	return STEP_CONTINUE;
}

// rate_passes asks the rule in a slot for a token. Without one it drops the packet, or has the walk
// continue with the next rule.
__noinline int rate_passes(struct cpu *c, __u32 slot)
{
	if (!c)
		return 0;
	struct walk *walk = &c->walk;
	int why = take_rate(c, slot);
	if (!why)
		return 1;
	struct code *r = code_of(walk, slot);
	if (!r)
		return 0;
	if (r->flags & CODE_RATE_NEXT)
		walk->mode = MODE_NEXT;
	else
		decide(walk, &c->verdict, r, 0, why);
	return 0;
}

static __always_inline int step_matched(struct cpu *c, void *image, struct header *h)
{
	struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	struct code *r = code_in(image, walk->slot);
	if (!r)
		return STEP_DONE;
	walk->mode = MODE_ACT;
	if (unlikely(r->flags & CODE_RATE) && !rate_passes(c, walk->slot))
		return walk->mode == MODE_NEXT ? STEP_CONTINUE : STEP_DONE;
	if (!r->state)
		return STEP_CONTINUE;
	if (unlikely(r->action == ACT_NAT)) { // deny_in: states are for what the host itself sends
		const struct packet *p = &c->packet;
		if (p->dir == DIR_IN ? has_nat(&c->nat, r) : p->recv)
			return STEP_CONTINUE;
		if (p->dir == DIR_IN) {
			count_rule(r->id, p->len, p->now);
			return decide(walk, v, r, 0, REASON_RULE);
		}
	}
	int why = get_state(c, r);
	if (why) {
		struct code *state_rule = code_in(image, walk->slot);
		if (state_rule)
			decide(walk, v, state_rule, 0, why);
		return STEP_DONE;
	}
	if (r->flags & CODE_DEFER)
		walk->mode = MODE_NEXT;
	return STEP_CONTINUE;
}

// pipe_passes asks the pipe of the rule in a slot for the bytes of the packet. Without them it
// drops the packet.
__noinline int pipe_passes(struct cpu *c, __u32 slot)
{
	if (!c)
		return 0;
	int why = take_pipe(c, slot);
	struct code *r = code_of(&c->walk, slot);
	if (why && r)
		decide(&c->walk, &c->verdict, r, 0, why);
	return !why;
}

static __always_inline int step_act(struct cpu *c, void *image, struct header *h)
{
	struct walk *walk = &c->walk;
	struct code *r = code_in(image, walk->slot);
	if (!r || (unlikely(r->flags & CODE_PIPE) && !pipe_passes(c, walk->slot)))
		return STEP_DONE;
	return apply_action(c, &c->packet, &c->nat, walk, &c->verdict, h, r);
}

static long one_step(__u32 index, void *unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return STEP_DONE;
	struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	void *image = image_of(walk);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h)
		return STEP_DONE;
	// Most rules are done in one step.
	if (walk->mode == MODE_NEXT && step_next(c, walk, v, image, h) == STEP_DONE)
		return STEP_DONE;
	if (walk->mode == MODE_COND && step_cond(c, walk, image, h) == STEP_DONE)
		return STEP_DONE;
	if (walk->cacheable && walk->mode >= MODE_MATCHED)
		verdict_store(c, walk->slot);
	if (walk->mode == MODE_MATCHED && step_matched(c, image, h) == STEP_DONE)
		return STEP_DONE;
	return walk->mode == MODE_ACT ? step_act(c, image, h) : STEP_CONTINUE;
}

static __always_inline void walk_rules(void)
{
	bpf_loop(MAX_STEPS, one_step, NULL, 0);
}
