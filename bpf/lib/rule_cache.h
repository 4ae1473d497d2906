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

// cache_owner caches the rule with an id, if it only counts packets and lets them pass.
__noinline int cache_owner(struct cpu *c, __u32 id)
{
	struct config *cf = settings();
	__u32 at = id % OWNERS;
	struct owner *o = bpf_map_lookup_elem(&owners, &at);
	if (!c || !cf || !o)
		return 0;
	struct walk *walk = &c->walk;
	__u64 when = when_of(READ_ONCE(cf->epoch), walk->current); // before any other read
	void *image = image_of(walk);
	struct code *r = image ? owner_of(walk, image, id) : NULL;
	if (!r || r->action != ACT_ALLOW || r->tag || r->flags & (CODE_LOG | CODE_PIPE))
		return 0;
	o->when = when;
	o->id = id;
	o->number = r->number;
	o->slot = walk->slot;
	return 1;
}

// fast_rule returns the cached rule with an id, or NULL if that does more than let a packet pass.
// The image is that in a slot, which walk->current holds.
static __always_inline struct owner *fast_rule(struct cpu *c, struct config *cf, __u32 id,
					       __u32 image)
{
	__u32 at = id % OWNERS;
	struct owner *o = bpf_map_lookup_elem(&owners, &at);

	if (o && (o->id != id || o->when != when_of(READ_ONCE(cf->epoch), image)) &&
	    !cache_owner(c, id))
		return NULL;
	return o;
}

_Static_assert(__builtin_offsetof(struct cpu, verdict) % sizeof(__u64) == 0 &&
		       sizeof(struct verdict) == sizeof(struct verdict_words) && REASON_RULE == 0,
	       "the two words of a verdict");

// passes sets the verdict of a packet that a rule lets pass, by two stores.
static __always_inline void passes(struct verdict *v, __u64 state, __u32 id, __u64 number,
				   __u16 slot)
{
	struct verdict_words *w = (void *)v;

	w->first = 1 | state << 32 | number << 48; // pass, state, number
	w->second = slot | (__u64)id << 32;
}
