// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Doing what a rule says: counters, log, tag, action.
#pragma once

#include "answer.h"
#include "create.h"

// What the next step does.
enum mode { MODE_NEXT, MODE_COND, MODE_MATCHED, MODE_ACT };
enum { STEP_CONTINUE, STEP_DONE };

__always_inline int decide(struct pkt *p, struct code *r, int pass, __u8 reason)
{
	p->v.pass = pass;
	p->v.reason = reason;
	p->v.number = r->number;
	p->v.id = r->id;
	p->v.slot = p->slot;
	return STEP_DONE;
}

__always_inline void add_tag(struct pkt *p, __u16 tag)
{
	for (__u32 i = 0; i < MAX_TAGS; i++) {
		if (i >= p->tags) {
			p->tag_list[i] = tag;
			p->tags = i + 1;
			return;
		}
		if (p->tag_list[i] == tag)
			return;
	}
}

__always_inline void count_rule(struct pkt *p, __u32 id)
{
	__u32 index = id & 0xffff;
	struct counter *n = bpf_map_lookup_elem(&counters, &index);

	if (n) {
		n->packets++;
		n->bytes += p->len;
		n->last = p->now;
	}
}

// log_rule reports the match of a rule with log, up to the rule's log limit.
__noinline int log_rule(__u32 slot)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf || !listened(cf, EVENT_LOG))
		return 0;
	struct pkt *p = &c->p;
	struct code *r = code_of(p, slot);
	if (!r)
		return 0;
	__u32 index = r->id & 0xffff;
	__u32 *n = bpf_map_lookup_elem(&logged, &index);
	if (!n || (r->log_max && __sync_fetch_and_add(n, 1) >= r->log_max))
		return 0;
	p->v.number = r->number;
	p->v.id = r->id;
	p->v.slot = slot;
	p->v.pass = r->action != ACT_DENY && (r->action < ACT_REJECT || r->action > ACT_UNREACH6);
	p->v.reason = REASON_RULE;
	return event_packet(EVENT_LOG);
}

// jump continues the walk at a slot. The 257th jump ends it.
__always_inline int jump(struct pkt *p, struct code *r, __u32 to)
{
	p->pc = to;
	if (++p->jumps > MAX_JUMPS)
		return decide(p, r, 0, REASON_LOOP);
	return STEP_CONTINUE;
}

// apply_action does what the rule in p->slot says.
__always_inline int apply_action(struct pkt *p, struct header *h, struct code *r)
{
	__u32 last = p->slot + 1 == h->rules, unknown = p->later && last;

	count_rule(p, r->id);
	if (r->flags & CODE_LOG)
		log_rule(p->slot);
	if (r->tag)
		add_tag(p, r->tag);
	p->pc = p->slot + 1;
	p->mode = MODE_NEXT;
	switch (r->action) {
	case ACT_ALLOW:
		if (unknown && h->need & NEED_STRICT)
			return decide(p, r, 0, REASON_FRAG_UNKNOWN);
		return decide(p, r, 1, REASON_RULE);
	case ACT_COUNT:
		return STEP_CONTINUE;
	case ACT_SKIPTO: // the loader has turned targets that lie behind
		return jump(p, r, r->arg);
	case ACT_CALL:
		if (p->depth >= MAX_CALLS)
			return STEP_CONTINUE;
		p->call[p->depth & (MAX_CALLS - 1)] = p->slot + 1;
		p->depth++;
		return jump(p, r, r->arg);
	case ACT_RETURN:
		if (!p->depth)
			return STEP_CONTINUE;
		p->depth--;
		return jump(p, r, p->call[p->depth & (MAX_CALLS - 1)]);
	}
	decide(p, r, 0, unknown ? REASON_FRAG_UNKNOWN : REASON_RULE);
	if (!unknown)
		set_answer(p, r);
	return STEP_DONE;
}
