// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Translations of rules with nat, docs/design/0004-containers.md section 5: what comes in is
// translated once such a rule has let it pass.
#pragma once

#include "translate.h"

// await_nat_rule gives a packet back the addresses that it has on the wire: rules see these until
// one with nat lets it pass.
static __always_inline void await_nat_rule(struct packet *p, struct nat *nat, struct walk *walk)
{
	apply_tuple(p, nat, &nat->orig);
	nat->translated = 0;
	walk->awaits_nat = AWAIT_PACKET + nat->make;
	nat->make = MAKE_NONE;
}

// translate_error translates an ICMP error that a rule with nat has let pass. One whose flow has
// ended meanwhile is dropped.
static __always_inline int translate_error(struct __sk_buff *skb, struct cpu *c)
{
	make_key(skb, c, &c->packet, &c->look);
	if (nat_follow(c, META_WIRE) && c->look.is_error && rewrite_error(skb, c) >= 0)
		return 1;
	c->verdict.pass = 0;
	c->verdict.reason = REASON_NAT_PORTS;
	return 0;
}

// after_nat_rule follows the evaluation of a packet whose translation waits for a rule with nat. It
// translates the packet if such a rule has let it pass. It reports whether the rules behind that
// rule have to be evaluated.
__noinline int after_nat_rule(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	struct nat *nat = &c->nat;
	struct walk *walk = &c->walk;
	__u32 waiting = walk->awaits_nat, by = walk->nat, resume = walk->resume;

	walk->awaits_nat = AWAIT_NOTHING;
	walk->resume = 0;
	if (!c->verdict.pass || !by || (nat->nat_rule != ANY_INSTANCE && nat->nat_rule != by)) {
		nat->inner = NONE;
		nat->nat_rule = 0;
		return 0;
	}
	if (unlikely(waiting == AWAIT_ERROR)) {
		if (!translate_error(skb, c))
			return 0;
	} else {
		nat->make = waiting - AWAIT_PACKET;
		apply_tuple(&c->packet, nat, &nat->new);
	}
	if (!resume)
		return 0;
	walk->resume = resume;
	nat->nat_rule |= SEEN_TRANSLATED;
	// a state of the rules so far has the addresses on the wire
	c->look.first_flow = NONE;
	return 1;
}
