// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Translations of rules with nat, docs/design/0004-containers.md section 5: what comes in is
// translated once such a rule has let it pass.
#pragma once

#include "translate.h"

// hold_translation gives a packet back the addresses that it has on the wire: rules see these until
// one with nat has let it pass.
static __always_inline void hold_translation(struct packet *p, struct nat *nat, struct walk *walk)
{
	become(p, nat, &nat->was);
	nat->translated = 0;
	walk->held = 1 + nat->make;
	nat->make = MAKE_NONE;
}

// take_held follows the evaluation of a packet whose translation is held back: it has it if a rule
// with nat has let it pass. It reports whether the rules behind that rule have to be asked.
__noinline int take_held(__u32 unused)
{
	struct cpu *c = this_cpu();
	if (!c)
		return unused;
	struct nat *nat = &c->nat;
	struct walk *walk = &c->walk;
	__u32 make = walk->held - 1, by = walk->nat;

	walk->held = 0;
	if (!c->verdict.pass || !by)
		walk->resume = by = 0;
	if (!by || (nat->ruled != ANY_INSTANCE && nat->ruled != by)) {
		nat->inner = NONE;
		nat->ruled = 0;
		return 0;
	}
	nat->make = make;
	become(&c->packet, nat, &nat->goal);
	if (!walk->resume)
		return 0;
	nat->ruled |= SEEN_TRANSLATED;
	c->look.first_flow =
		NONE; // a state of the rules so far is one of the addresses on the wire
	return 1;
}
