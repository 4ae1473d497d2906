// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The parts of the fast path that run in the second program of a hook.
#pragma once

#include "fast_new.h"
#include "fast_step.h"

// fast_decide evaluates a packet that fast_established has described, and found to be `known`. It
// reports whether it did. A new state gets the flags `need`.
static __always_inline int fast_decide(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				       __u32 l2, __u32 known, __u32 need)
{
	if (known == FAST_STEP)
		return fast_step(skb, c, l2);
	return known == FAST_NEW && fast_new(skb, c, l2, need);
}
