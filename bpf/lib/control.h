// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the agent asks the kernel to do with the state table: it never writes there itself, for it would race with packets.
#pragma once

#include "sweep.h"

enum op { OP_JUDGE, OP_REMOVE, OP_SWEEP, OP_ADOPT, OP_PURGE, OP_TICK };

// adopt makes the state that the call describes, with its sides and its rule as they are given, unless there is one.
checked_once int adopt(__u32 unused)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u32 zero = 0;
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);
	if (!c || !cf || !in || !g)
		return unused;
	struct pkt *p = &c->p;
	p->key = in->key;
	p->hashed = 0;
	key_hash(p, cf, p->key.flow);
	if (find(p, cf))
		return 0;
	int made = (in->side[0].flags & META_MADE) != 0, embryo = (in->side[0].flags & META_EMBRYO) != 0;
	__u64 hi = made ? p->key.low_hi : p->key.high_hi, lo = made ? p->key.low_lo : p->key.high_lo;
	if (embryo && !enter_source(cf->max_source, cf, hi, lo))
		return -REASON_EMBRYONIC_SOURCE;
	if ((g->states + c->pending >= cf->max_states && !reclaim(cf, p)) || !place_for(cf, p)) {
		if (embryo)
			leave_source(cf, hi, lo);
		return -REASON_STATES_FULL;
	}
	__u32 place = p->place, way = place % WAYS;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	if (!s || !t)
		return 0;
	s->addr[way].low_hi = p->key.low_hi;
	s->addr[way].low_lo = p->key.low_lo;
	s->addr[way].high_hi = p->key.high_hi;
	s->addr[way].high_lo = p->key.high_lo;
	*low_side(s, way) = in->side[0];
	*high_side(s, way) = in->side[1];
	count_states(c, cf, 1);
	if (embryo)
		count_embryos(1);
	__sync_lock_test_and_set(&t->tag[way], embryo ? p->tag | TAG_EMBRYO : p->tag);
	c->created++;
	return settle(place);
}

// operate does anything but judging.
checked_once int operate(__u32 op)
{
	__u32 zero = 0;
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!cf || !in)
		return 0;
	if (op == OP_REMOVE)
		return remove_state(in->place, in->tag_word, in->count);
	if (op == OP_TICK)
		return start_ticking();
	if (op == OP_ADOPT)
		return adopt(0);
	struct sweep w = {.next = in->place, .sets = cf->sets, .purge = op == OP_PURGE};
	bpf_loop(in->count, sweep_one, &w, 0);
	return w.gone;
}

// take_input sets what the hook would set, from the call.
checked_once int take_input(__u32 unused)
{
	__u32 zero = 0;
	struct cpu *c = this_cpu();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !in)
		return unused;
	struct pkt *p = &c->p;
	p->dir = in->dir;
	p->recv = in->recv;
	p->xmit = in->xmit;
	p->random = in->random;
	p->second = 0;
	p->offer = OFFER_NONE;
	p->tags = 0;
	for (__u32 i = 0; i < MAX_TAGS; i++) {
		if (i < in->tags)
			add_tag(p, in->tag[i]);
	}
	return 0;
}

// give_verdict ends a judgement and writes it into the call. The program returns what this does.
checked_once int give_verdict(__u32 unused)
{
	__u32 zero = 0;
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !cf || !in)
		return 1;
	finish(c, cf);
	in->out = c->p.v;
	return unused;
}
