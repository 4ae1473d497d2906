// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// A number that may be missing: a place, a slot, a flow id. Zeroed memory holds none. READ_ONCE and
// WRITE_ONCE take plus1: clang copies volatile structs through the stack.
#pragma once

#include "kernel.h"

struct maybe {
	__u32 plus1;
};

#define NONE ((struct maybe){})

static __always_inline struct maybe some(__u32 n)
{
	return (struct maybe){.plus1 = n + 1};
}

// maybe_from is for global functions, which take and return only plain numbers: plus1.
static __always_inline struct maybe maybe_from(__u32 plus1)
{
	return (struct maybe){.plus1 = plus1};
}

// The following are macros: clang 14 loads a struct that it passes by value as four bytes, which
// takes nine instructions instead of one.
#define exists(m) ((m).plus1 != 0)

// number returns the number of m, which exists.
#define number(m) ((m).plus1 - 1)

#define holds(m, n) ((m).plus1 == (n) + 1)
