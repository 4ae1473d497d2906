// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Evaluation of one packet, docs/design/0003-evaluation.md section 2. The caller has set dir,
// recv, xmit, now, random and the tags.
#pragma once

#include "dhcp.h"
#include "scale_chunk.h"
#include "frag.h"

static __always_inline void load_iface(__u32 ifindex, struct iface *to)
{
	struct iface *f = ifindex ? bpf_map_lookup_elem(&ifaces, &ifindex) : NULL;

	if (f)
		*to = *f;
	else
		__builtin_memset(to, 0, sizeof(*to));
}

static __always_inline void reset_walk(struct walk *walk)
{
	walk->pc = 0;
	walk->word = ~0U;
	walk->all = 0;
	walk->match = 0;
	walk->classified = 0;
	walk->entry = 0;
	walk->clause = 0;
	walk->mode = MODE_NEXT;
	walk->depth = 0;
	walk->jumps = 0;
	walk->lookups = 0;
	walk->any_looked_up = 0;
	walk->cacheable = 0;
	for (int i = 0; i < 4; i++) {
		walk->looked[i] = 0;
		walk->have[i] = 0;
	}
}

enum { LOOKUP_WALK, LOOKUP_CONTINUE, LOOKUP_DONE };

// by_first_lookup decides about most packets of the slow path: the first rule looks a state up,
// finds one, and its rule decides (LOOKUP_DONE). Otherwise the walk begins (LOOKUP_WALK) or
// continues with the action of the state's rule (LOOKUP_CONTINUE).
static __always_inline int by_first_lookup(struct cpu *c, void *image, struct header *h)
{
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	__u32 flow = number(fast_flow(h));
	int found = was_missed(look, flow) ? LOOK_MISS : look_up(c, flow);
	struct code *state_rule = found == LOOK_MISS ? NULL : code_in(image, walk->slot);

	if (found == LOOK_HIT && state_rule && state_rule->action == ACT_ALLOW &&
	    !state_rule->tag && !(state_rule->flags & (CODE_LOG | CODE_PIPE))) {
		v->state = USE_HIT;
		count_rule(state_rule->id, p->len, p->now);
		decide(walk, v, state_rule, 1, REASON_RULE);
		look->decided_by_state = 1;
		return LOOKUP_DONE;
	}
	if (look_drops(found) && state_rule) {
		decide(walk, v, state_rule, 0, look_reason(found));
		return LOOKUP_DONE;
	}
	reset_walk(walk);
	record_lookup(walk, flow);
	walk->lookups = 1;
	if (found == LOOK_MISS) {
		walk->pc = h->after;
		return LOOKUP_WALK;
	}
	walk->have[flow >> 6 & 3] |= 1ULL << (flow & 63);
	v->state = found == LOOK_HIT ? USE_HIT : USE_UNTOUCHED;
	walk->mode = MODE_ACT;
	return LOOKUP_CONTINUE;
}

// begin_rules starts the walk at the first rule that matches, if the verdict cache has it.
static __always_inline void begin_rules(struct cpu *c, struct walk *walk, struct header *h)
{
	struct maybe slot = maybe_from(verdict_lookup(c, h->reads));

	if (!exists(slot))
		return;
	walk->slot = number(slot);
	walk->pc = walk->slot + 1;
	walk->mode = MODE_MATCHED;
}

// evaluate_rules reports whether the rules have to be walked. `at`, if not 0, is the slot where the
// walk continues.
static __always_inline int evaluate_rules(struct __sk_buff *skb, struct config *cf, struct cpu *c,
					  void *image, struct header *h, __u32 at)
{
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	// before anything that rules ask about is read: what changes from now on raises it
	walk->epoch = READ_ONCE(cf->epoch);
	if (h->need & NEED_NAMES) {
		load_iface(p->recv, &walk->recv_if);
		load_iface(p->xmit, &walk->xmit_if);
	}
	look->keyed = KEY_NONE;
	if (h->need & NEED_STATES) {
		if (p->proto == PROTO_SCTP || (p->proto == PROTO_TCP && p->tcp_flags & TH_SYN))
			read_scale_or_chunk(skb, c);
		make_key(skb, c, p, look);
		if (exists(fast_flow(h)) && !walk->later_fragment && !at) {
			int r = by_first_lookup(c, image, h);
			if (r == LOOKUP_WALK)
				begin_rules(c, walk, h);
			return r != LOOKUP_DONE;
		}
	}
	__u32 depth = walk->depth, jumps = walk->jumps;
	reset_walk(walk);
	if (likely(!at)) {
		begin_rules(c, walk, h);
		return 1;
	}
	walk->pc = at;
	walk->depth = depth; // a "return" here returns to a "call" before this slot
	walk->jumps = jumps;
	return 1;
}

static __always_inline void decide_without_rule(struct verdict *v, int pass, __u8 reason)
{
	v->pass = pass;
	v->reason = reason;
}

// read_frame parses the frame of skb. l2 is 14 on an interface with Ethernet headers, L2_INFINIBAND
// on one of InfiniBand, and 0 on one without headers.
__noinline int read_frame(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	if (!c)
		return 0;
	c->packet.segment = skb->gso_size;
	if (l2 == L2_INFINIBAND)
		c->packet.kind = parse_slow(skb, c, L2_INFINIBAND);
	else
		c->packet.kind = parse(skb, c, &c->packet, l2 ? 14 : 0);
	return 0;
}

// by_rules walks the rules, and records the verdict on a first fragment.
__noinline int by_rules(struct cpu *c)
{
	walk_rules();
	if (c && unlikely(c->packet.frag & FRAG_FIRST))
		record_fragment(c);
	return 0;
}

// before_rules decides about the packet of skb, unless the rules have to be walked: then it
// returns 1.
__noinline int before_rules(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct walk *walk = &c->walk;
	struct verdict *v = &c->verdict;
	__u32 at = walk->resume;

	walk->resume = 0;
	walk->nat = 0;
	walk->next_hop = 0;
	__builtin_memset(v, 0, sizeof(*v));
	look->proved = NONE;
	v->reason = REASON_LOOP;
	if (likely(!at)) // a walk that continues keeps its image
		walk->current = cf->current & CURRENT_SLOT;
	if (p->kind != PARSED_IP) {
		p->len = 0;
		decide_without_rule(v, 1, REASON_NOT_IP);
		return 0;
	}
	if (p->reason) {
		decide_without_rule(v, 0, REASON_DECODE + p->reason);
		return 0;
	}
	// Not at the second evaluation: a forwarded packet has a lower hop limit, and is no longer
	// neighbour discovery.
	if (p->proto == PROTO_ICMPV6 && !cf->no_essential && !p->second_evaluation &&
	    essential(p)) {
		decide_without_rule(v, 1, REASON_ESSENTIAL);
		return 0;
	}
	if (p->proto == PROTO_UDP && dhcp_ports(p->ports) && !cf->no_dhcp && is_dhcp(c)) {
		decide_without_rule(v, 1, REASON_ESSENTIAL);
		return 0;
	}
	walk->later_fragment = (p->frag & FRAG_LATER) != 0;
	if (unlikely(walk->later_fragment) && follow_fragment(c)) {
		charge_fragment(c, p, walk, v);
		return 0;
	}
	void *image = image_of(walk);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h) { // no Program was ever loaded
		decide_without_rule(v, 1, REASON_RULE);
		return 0;
	}
	if (evaluate_rules(skb, cf, c, image, h, at))
		return 1;
	if (unlikely(p->frag & FRAG_FIRST))
		record_fragment(c);
	return 0;
}

// evaluate decides about the packet of skb, which has been read. It calls its two parts one after
// the other: nested, their stacks would be too deep.
static __always_inline void evaluate(struct __sk_buff *skb, struct cpu *c)
{
	if (before_rules(skb, c))
		by_rules(c);
	if (c)
		count_proved(c, &c->look);
}

static __always_inline void report_drop(struct cpu *c, const struct verdict *v, struct config *cf)
{
	__u8 r = v->reason;

	if (r == REASON_COOKIE) // it was answered, not dropped
		return;

	__u32 kind = (r >= REASON_LIMIT && r <= REASON_NO_KEY) || r == REASON_HALF_OPEN_SOURCE ||
				     r == REASON_TRACKS_FULL ?
			     EVENT_REFUSE :
			     EVENT_DROP;

	if (event_wanted(cf, kind))
		event_packet(c, kind);
}

static __always_inline void count_verdict(struct cpu *c)
{
	const struct packet *p = &c->packet;
	const struct verdict *v = &c->verdict;
	struct count *n = &c->decided[below((p->dir * 2 + v->pass) * NUM_REASONS + v->reason,
					    4 * NUM_REASONS)];

	n->packets++;
	n->bytes += p->len;
}

// count_passed counts a packet that a rule let pass.
static __always_inline void count_passed(struct cpu *c, __u8 dir, __u32 len)
{
	struct count *n = &c->decided[(dir * 2 + 1) * NUM_REASONS + REASON_RULE];

	n->packets++;
	n->bytes += len;
}

// finish counts the verdict, and reports a drop or a new state.
static __always_inline void finish(struct cpu *c, struct config *cf)
{
	const struct verdict *v = &c->verdict;

	count_verdict(c);
	if (unlikely(!v->pass))
		report_drop(c, v, cf);
	if (unlikely(v->state == USE_NEW) && event_wanted(cf, EVENT_START))
		event_packet(c, EVENT_START);
}
