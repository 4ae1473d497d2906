// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Operations on the state table that the agent requests. It never writes there itself: it would
// race with packets.
#pragma once

#include "adopt.h"

__noinline int operate(struct cpu *c, __u32 op)
{
	__u32 zero = 0;
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!cf || !in || !c)
		return 0;
	if (op == OP_REMOVE)
		return remove_state(c, in->place, in->tag_word, in->count);
	if (op == OP_CLOCK) {
		// first: if the clock moves on in between, ours is late rather than early
		__s64 now = bpf_ktime_get_coarse_ns();
		in->clock = now - (__s64)bpf_jiffies64() * in->clock;
		return 0;
	}
	if (op == OP_ADOPT) {
		int r = adopt(c, 0);
		return r == ADOPT_FOUND ? merge(c, c->look.place, 0) : r;
	}
	if (op == OP_ADOPT_MANY)
		return bpf_loop(in->count, adopt_one, NULL, 0);
	if (op == OP_BEGIN_MOVE)
		return begin_move(c, in->place);
	if (op == OP_END_MOVE)
		return end_move(c, in->place);
	c->rule_in_force = 0;
	struct sweep w = {.next = in->place, .sets = cf->sets, .purge = op == OP_PURGE};
	bpf_loop(in->count, sweep_one, &w, 0);
	return w.gone;
}

// take_input sets what the hook would set, from the call.
__noinline int take_input(struct cpu *c)
{
	__u32 zero = 0;
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !in)
		return 0;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	struct cookie *cookie = &c->cookie;
	p->dir = in->dir;
	p->recv = in->recv;
	p->xmit = in->xmit;
	walk->random = in->random;
	p->second_evaluation = 0;
	cookie->offer = OFFER_NONE;
	look->missed = NONE;
	c->nat.translated = 0;
	c->nat.nat_rule = 0;
	walk->awaits_nat = AWAIT_NOTHING;
	walk->resume = 0;
	walk->tags = 0;
	for (__u32 i = 0; i < MAX_TAGS; i++) {
		if (i < in->tags)
			add_tag(walk, in->tag[i]);
	}
	return 0;
}

// give_verdict ends an evaluation and writes the verdict into the call. The program returns this
// function's result.
__noinline int give_verdict(struct cpu *c)
{
	__u32 zero = 0;
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !cf || !in)
		return 1;
	finish(c, cf);
	in->out = c->verdict;
	return 0;
}
