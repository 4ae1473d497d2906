// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The rules of established flows, cached on each CPU for the fast path.
#pragma once

#include "evaluate.h"

enum { RULE_CACHE_SIZE = 256 };

// A rule that only counts a packet and lets it pass, by the id that its states hold. A look-up of
// an image's row is a call of a helper.
struct cached_rule {
	__u64 generation; // generation_of; 0 for nothing
	__u32 id;
	__u16 number;
	__u16 slot;
};

// The cache. A map is pinned under its name.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RULE_CACHE_SIZE);
	__type(key, __u32);
	__type(value, struct cached_rule);
} rule_cache SEC(".maps");

// cache_rule caches the rule with an id, if it only counts packets and lets them pass.
__noinline int cache_rule(struct cpu *c, __u32 id)
{
	struct config *cf = settings();
	__u32 at = id % RULE_CACHE_SIZE;
	struct cached_rule *o = bpf_map_lookup_elem(&rule_cache, &at);
	if (!c || !cf || !o)
		return 0;
	struct walk *walk = &c->walk;
	__u64 generation =
		generation_of(READ_ONCE(cf->epoch), walk->current); // before any other read
	void *image = image_of(walk);
	struct code *r = image ? find_rule(walk, image, id) : NULL;
	if (!r || r->action != ACT_ALLOW || r->tag || r->flags & (CODE_LOG | CODE_PIPE))
		return 0;
	o->generation = generation;
	o->id = id;
	o->number = r->number;
	o->slot = walk->slot;
	return 1;
}

// find_cached_rule returns the cached rule with an id, or NULL if that does more than let a packet
// pass. The image is that in a slot, which walk->current holds.
static __always_inline struct cached_rule *find_cached_rule(struct cpu *c, struct config *cf,
							    __u32 id, __u32 image)
{
	__u32 at = id % RULE_CACHE_SIZE;
	struct cached_rule *o = bpf_map_lookup_elem(&rule_cache, &at);

	if (o && (o->id != id || o->generation != generation_of(READ_ONCE(cf->epoch), image)) &&
	    !cache_rule(c, id))
		return NULL;
	return o;
}

_Static_assert(__builtin_offsetof(struct cpu, verdict) % sizeof(__u64) == 0 &&
		       sizeof(struct verdict) == sizeof(struct verdict_words) && REASON_RULE == 0,
	       "the two words of a verdict");

// set_pass sets the verdict of a packet that a rule lets pass, by two stores.
static __always_inline void set_pass(struct verdict *v, __u64 state, __u32 id, __u64 number,
				     __u16 slot)
{
	struct verdict_words *w = (void *)v;

	w->first = 1 | state << 32 | number << 48; // pass, state, number
	w->second = slot | (__u64)id << 32;
}
