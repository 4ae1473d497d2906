// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The rules of established flows, cached on each CPU for the fast path.
#pragma once

#include "evaluate.h"

enum { OWNERS = 256 };

// A rule that only counts a packet and lets it pass, cached on each CPU by the id that its states
// hold: a look-up of an image's row is a helper call.
struct owner {
	__u64 when; // when_of; 0 for nothing
	__u32 id;
	__u16 number;
	__u16 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct owner);
} owners SEC(".maps");

// cache_owner caches the rule with an id, if it is such a rule.
__noinline int cache_owner(__u32 id)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	__u32 at = id % OWNERS;
	struct owner *o = bpf_map_lookup_elem(&owners, &at);
	if (!c || !cf || !o)
		return 0;
	struct walk *walk = &c->walk;
	__u64 when = when_of(READ_ONCE(cf->epoch), walk->current); // before any other read
	void *image = image_of(walk);
	struct code *r = image ? owner_of(walk, image, id) : NULL;
	if (!r || r->action != ACT_ALLOW || r->tag || r->flags & CODE_LOG)
		return 0;
	o->when = when;
	o->id = id;
	o->number = r->number;
	o->slot = walk->slot;
	return 1;
}

// fast_rule returns the cached rule with an id, or NULL if that does more than let a packet pass.
static __always_inline struct owner *fast_rule(const struct walk *walk, struct config *cf, __u32 id)
{
	__u32 at = id % OWNERS;
	struct owner *o = bpf_map_lookup_elem(&owners, &at);

	if (o && (o->id != id || o->when != when_of(READ_ONCE(cf->epoch), walk->current)) &&
	    !cache_owner(id))
		return NULL;
	return o;
}

// passes counts the packet for a rule that lets it pass, and sets the verdict.
static __always_inline void passes(const struct packet *p, struct verdict *v, __u8 state, __u32 id,
				   __u16 number, __u16 slot)
{
	count_rule(p, id);
	__builtin_memset(v, 0, sizeof(*v));
	v->state = state;
	v->pass = 1;
	v->number = number;
	v->id = id;
	v->slot = slot;
}
