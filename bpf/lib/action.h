// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Doing what a rule says: counters, log, tag, action.
#pragma once

#include "answer.h"
#include "state_create.h"

// What the next step does.
enum mode { MODE_NEXT, MODE_COND, MODE_MATCHED, MODE_ACT };
enum { STEP_CONTINUE, STEP_DONE };

static __always_inline int decide(const struct walk *walk, struct verdict *v, struct code *r,
				  int pass, __u8 reason)
{
	v->pass = pass;
	v->reason = reason;
	v->number = r->number;
	v->id = r->id;
	v->slot = walk->slot;
	return STEP_DONE;
}

static __always_inline void add_tag(struct walk *walk, __u16 tag)
{
	for (__u32 i = 0; i < MAX_TAGS; i++) {
		if (i >= walk->tags) {
			walk->tag_list[i] = tag;
			walk->tags = i + 1;
			return;
		}
		if (walk->tag_list[i] == tag)
			return;
	}
}

// count_rule_times counts packets of len bytes each.
static __always_inline void count_rule_times(__u32 id, __u32 len, __s64 now, __u32 times)
{
	__u32 index = id & 0xffff;
	struct counter *n = bpf_map_lookup_elem(&counters, &index);

	if (n) {
		n->packets += times;
		n->bytes += (__u64)len * times;
		n->last = now;
	}
}

static __always_inline void count_rule(__u32 id, __u32 len, __s64 now)
{
	count_rule_times(id, len, now, 1);
}

// may_log counts one event of a rule that logs the first `most`, and reports whether it is one of
// these. The count stops there: otherwise it would be 0 again after 2^32 matches.
static __always_inline int may_log(__u32 *n, __u32 most)
{
	if (READ_ONCE(*n) >= most)
		return 0;
	if (__sync_fetch_and_add(n, 1) < most)
		return 1;
	__sync_fetch_and_add(n, -1); // another CPU has taken the last one
	return 0;
}

// log_rule reports the match of a rule with log, up to the rule's log limit.
__noinline int log_rule(struct cpu *c, __u32 slot)
{
	struct config *cf = settings();
	if (!c || !cf || !event_wanted(cf, EVENT_LOG))
		return 0;
	const struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	struct code *r = code_of(walk, slot);
	if (!r)
		return 0;
	__u32 index = r->id & 0xffff;
	__u32 *n = bpf_map_lookup_elem(&logged, &index);
	if (!n || (r->log_max && !may_log(n, r->log_max)))
		return 0;
	v->number = r->number;
	v->id = r->id;
	v->slot = slot;
	v->pass = r->action != ACT_DENY && (r->action < ACT_REJECT || r->action > ACT_UNREACH6);
	v->reason = REASON_RULE;
	return event_packet(c, EVENT_LOG);
}

// jump continues the walk at a slot. The 257th jump ends it.
static __always_inline int jump(struct walk *walk, struct verdict *v, struct code *r, __u32 to)
{
	walk->pc = to;
	if (++walk->jumps > MAX_JUMPS)
		return decide(walk, v, r, 0, REASON_LOOP);
	return STEP_CONTINUE;
}

// has_nat: a rule with nat translates the packet. A flow that any instance has translated is
// translated back by all instances; a redirected port belongs to one instance.
static __always_inline int has_nat(const struct nat *nat, const struct code *r)
{
	return nat->nat_rule == ANY_INSTANCE || nat->nat_rule == (r->arg & (NAT_CONTINUES - 1));
}

// set_hop lets the rule in a slot send the packet to its next hop. As in ipfw, of the packets of
// its states only those in the direction of the first packet are sent there.
__noinline int set_hop(struct cpu *c, __u32 slot)
{
	if (!c)
		return 0;
	const struct lookup *look = &c->look;
	struct code *r = code_of(&c->walk, slot);
	if (!r)
		return 0;
	if (c->verdict.state != USE_NONE && look->first_rule == r->id) {
		__u32 place = look->first_place;
		struct set *s = set_at(place / WAYS);
		struct side *d = !s ? NULL : look->from ? high_side(s, place) : low_side(s, place);
		if (!d || look->is_error || !(READ_ONCE(d->flags) & META_MADE))
			return 0;
	}
	c->walk.next_hop = r->arg + 1;
	return 1;
}

// apply_action does what the rule in walk->slot says.
static __always_inline int apply_action(struct cpu *c, const struct packet *p,
					const struct nat *nat, struct walk *walk, struct verdict *v,
					struct header *h, struct code *r)
{
	__u32 last = walk->slot + 1 == h->rules, unknown = walk->later_fragment && last;

	count_rule(r->id, p->len, p->now);
	if (r->flags & CODE_LOG)
		log_rule(c, walk->slot);
	if (r->tag)
		add_tag(walk, r->tag);
	walk->pc = walk->slot + 1;
	walk->mode = MODE_NEXT;
	switch (r->action) {
	case ACT_ALLOW:
		if (unknown && h->need & NEED_STRICT)
			return decide(walk, v, r, 0, REASON_FRAG_UNKNOWN);
		return decide(walk, v, r, 1, REASON_RULE);
	case ACT_NAT:
		walk->nat = r->arg & (NAT_CONTINUES - 1);
		if (!(r->arg & NAT_CONTINUES))
			return decide(walk, v, r, 1, REASON_RULE);
		if (!walk->awaits_nat || !has_nat(nat, r))
			return STEP_CONTINUE;
		walk->resume = walk->slot + 1;
		return decide(walk, v, r, 1, REASON_RULE);
	case ACT_FWD:
		set_hop(c, walk->slot);
		return decide(walk, v, r, 1, REASON_RULE);
	case ACT_COUNT:
		return STEP_CONTINUE;
	case ACT_SKIPTO: // the compiler lets targets lie only ahead
		return jump(walk, v, r, r->arg);
	case ACT_CALL:
		if (walk->depth >= MAX_CALLS)
			return STEP_CONTINUE;
		walk->call[walk->depth & (MAX_CALLS - 1)] = walk->slot + 1;
		walk->depth++;
		return jump(walk, v, r, r->arg);
	case ACT_RETURN:
		if (!walk->depth)
			return STEP_CONTINUE;
		walk->depth--;
		return jump(walk, v, r, walk->call[walk->depth & (MAX_CALLS - 1)]);
	}
	decide(walk, v, r, 0, unknown ? REASON_FRAG_UNKNOWN : REASON_RULE);
	if (!unknown)
		set_answer(p, v, r);
	return STEP_DONE;
}
