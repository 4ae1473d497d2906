// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The end of an evaluation: the verdict is counted and reported, and a refused packet is held,
// dropped or answered.
#pragma once

#include "fwd_cache.h"
#include "held_packets.h"
#include "reply.h"

// conclude holds a refused packet while hooks are taken over. Otherwise it counts and reports the
// verdict, and gives the frame to a capture. It reports whether the packet passes.
static __always_inline int conclude(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				    __u32 l2)
{
	if (unlikely(cf->holding) && !c->verdict.pass && hold(skb, c)) {
		c->verdict.answer = ANSWER_NONE;
		return 0;
	}
	finish(c, cf);
	if (unlikely(event_wanted(cf, EVENT_PACKET)))
		event_frame(skb, c, l2);
	return c->verdict.pass;
}

// drop drops a packet for a reason other than a rule.
static __always_inline int drop(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				__u8 reason)
{
	struct verdict *v = &c->verdict;
	__u32 l3 = c->packet.l3;

	__builtin_memset(v, 0, sizeof(*v));
	v->reason = reason;
	conclude(skb, c, cf, l3 == L2_INFINIBAND ? L2_INFINIBAND : l3 ? 14 : 0);
	return TC_ACT_SHOT;
}

// refuse_frame drops a packet that the rules did not let pass. An answer is to the packet as it
// came in, not as translated.
static __always_inline int refuse_frame(struct __sk_buff *skb, struct cpu *c, struct packet *p,
					const struct verdict *v, struct nat *nat)
{
	if (likely(!v->answer))
		return TC_ACT_SHOT;
	if (nat->translated)
		apply_tuple(p, nat, &nat->orig);
	if (p->second_evaluation)
		p->dir = DIR_IN; // where the frame still is
	return reply(skb, c);
}

// fail_hop drops a packet that cannot be forwarded. FWD_ANSWER: answer_hop answers as a router
// does. Here the stack would be too deep for it.
static __always_inline int fail_hop(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				    __u8 reason, enum hop_error error)
{
	const struct packet *p = &c->packet;
	struct verdict *v = &c->verdict;

	drop(skb, c, cf, reason);
	if (!answerable(p) || cf->holding)
		return TC_ACT_SHOT;
	v->answer = p->version == 4 ? ANSWER_UNREACH : ANSWER_UNREACH6;
	v->code = error == HOP_TOO_BIG && p->version == 4 ? 4 : 0;
	c->fwd.hop_error = error;
	return FWD_ANSWER;
}
