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

// set_verdict sets the verdict of a packet that a rule drops or lets pass, by two stores.
static __always_inline void set_verdict(struct verdict *v, __u64 pass, __u64 state, __u32 id,
					__u64 number, __u16 slot)
{
	struct verdict_words *w = (void *)v;

	w->first = pass | state << 32 | number << 48;
	w->second = slot | (__u64)id << 32;
}

static __always_inline void set_pass(struct verdict *v, __u64 state, __u32 id, __u64 number,
				     __u16 slot)
{
	set_verdict(v, 1, state, id, number, slot);
}

// by_cached_rule lets a cached rule that keeps no state drop a packet or let it pass. It reports
// whether it did. A drop that has to be reported, or may be undone, is the slow path's.
static __always_inline int by_cached_rule(struct cpu *c, struct config *cf,
					  const struct cached_verdict *m)
{
	const struct packet *p = &c->packet;
	__u32 kind = m->slot & ~CACHED_SLOT;

	if (kind == CACHED_DROP ? cf->holding | event_wanted(cf, EVENT_DROP) : kind != CACHED_PASS)
		return 0;
	set_verdict(&c->verdict, kind == CACHED_PASS, USE_NONE, m->id, m->number,
		    m->slot & CACHED_SLOT);
	count_rule(m->id, p->len, p->now);
	return 1;
}
