// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which packets need not go through the stack, as far as netfilter and queueing disciplines are
// concerned, docs/design/0004-containers.md section 3.
#pragma once

#include "fwd_cache.h"

// originated returns the flags of the state of a packet that its originator sent, 0 if there is
// none, or another sent it.
static __always_inline __u32 originated(const struct lookup *look)
{
	__u32 place = look->first_place;
	struct set *s = exists(look->first_flow) && !look->is_error ? set_at(place / WAYS) : NULL;

	if (!s)
		return 0;
	__u32 flags = READ_ONCE((look->from ? high_side(s, place) : low_side(s, place))->flags);
	return flags & META_MADE ? flags : 0;
}

// set_redirect marks the packet's state: netfilter does not translate the flow.
static __always_inline void set_redirect(const struct lookup *look)
{
	__u32 place = look->first_place;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);

	// another flow may have taken the entry meanwhile
	if (s && t && same_tag(READ_ONCE(t->tag[place % WAYS]), look->first_tag)) {
		set_flags(low_side(s, place), META_REDIRECT);
		set_flags(high_side(s, place), META_REDIRECT);
	}
}

// queued: a pod that the packet comes from or goes to has queueing disciplines.
static __always_inline int queued(const struct forward *fwd)
{
	const struct pkt_endpoint *from = &fwd->endpoint[DIR_OUT], *to = &fwd->endpoint[DIR_IN];

	return ((from->is_pod ? from->limited : 0) | (to->is_pod ? to->limited : 0)) &
	       ENDPOINT_QUEUED;
}

// may_redirect: the packet may bypass the stack, because neither a queueing discipline nor
// netfilter needs it. A flow that netfilter translates has two states: one made where it came in,
// one made where it left the stack. So an answer may be redirected only if the packets that it
// answers are, and these only if their state was made here or where they came in. Where netfilter
// may translate the first packet of a flow, that packet goes up the stack. If it leaves as it came
// in, the flow is not translated. Packets without a state do not show that and go up the stack; so
// do all fragments, which netfilter reassembles.
__noinline int may_redirect(struct cpu *c)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return 0;
	const struct lookup *look = &c->look;
	__u32 place = look->first_place, netfilter = f->netfilter;

	if (unlikely(queued(&c->fwd)))
		return 0;
	if (c->nat.make)
		return 1;
	struct set *s = exists(look->first_flow) ? set_at(place / WAYS) : NULL;
	if (!s || c->packet.frag & FRAG_FIRST)
		return !netfilter;
	if (READ_ONCE(low_side(s, place)->flags) & (META_REDIRECT | META_PUBLISHED))
		return 1;
	return !netfilter && originated(look) & (META_CAME_IN | META_ADOPTED);
}
