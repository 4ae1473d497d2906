// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The sweep frees entries. A clock hand, as in the CLOCK page replacement algorithm, passes over
// the state table, a few sets per tick of one timer in the kernel. Correctness does not depend on
// it: every look-up checks whether what it found has expired.
#pragma once

#include "evaluate.h"
#include "sweep_hint.h"

// A pass takes a second, so that a closed connection leaves the table two seconds after its end at
// the latest. In large tables it takes longer, so that a tick stays short: four seconds from two
// million states on.
enum {
	TICK_MS = 10,
	TICKS_PER_PASS = 100,
	MOST_TICKS_PER_PASS = 400,
	SETS_PER_TICK = 768,
	MAX_SETS_PER_TICK = 4096
};
// Probes to idle TCP connections: every PROBE_EVERY seconds of a state's last PROBE_WITHIN (ipfw's
// dyn_keepalive_interval and _period).
enum { PROBE_WITHIN = 20, PROBE_EVERY = 5 };
enum { CLOCK_MONOTONIC = 1 };
#define COOKIE_LOOK 1000000000LL

// sets_per_tick is how many sets the hand passes in one tick.
static __always_inline __u32 sets_per_tick(struct config *cf)
{
	__u32 n = cf->sets / TICKS_PER_PASS + 1;

	if (n > SETS_PER_TICK)
		n = max32(SETS_PER_TICK, cf->sets / MOST_TICKS_PER_PASS + 1);
	return n < MAX_SETS_PER_TICK ? n : MAX_SETS_PER_TICK;
}

// pass_ns is how long the hand takes for the whole table.
static __always_inline __s64 pass_ns(struct config *cf)
{
	return (__s64)(cf->sets / sets_per_tick(cf) + 1) * TICK_MS * 1000000;
}

// event_probe asks the agent to probe both ends of an idle TCP connection.
static __always_inline void event_probe(struct config *cf, struct cpu *c, struct set *s, __u32 way,
					__u64 tag)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->lost++;
		return;
	}
	way &= WAYS - 1;
	struct side *low = &s->side[way * 2], *high = &s->side[way * 2 + 1];
	__builtin_memset(e, 0, sizeof(*e));
	e->time = c->packet.now;
	e->src_hi = s->addr[way].low_hi;
	e->src_lo = s->addr[way].low_lo;
	e->dst_hi = s->addr[way].high_hi;
	e->dst_lo = s->addr[way].high_lo;
	e->ports = tag >> 32;
	e->packets[0] = (__u64)low->ack << 32 | high->ack;
	e->rule = low->rule;
	e->proto = PROTO_TCP;
	e->kind = EVENT_PROBE;
	bpf_ringbuf_submit(e, 0);
}

// wants_probe: the state is an established TCP connection that will expire soon; one end may have
// sent its FIN. Of the passes within PROBE_EVERY one sends the probe. The numbers of an adopted
// connection may be unknown. Any number will do: an end answers one that it does not expect with
// its own (RFC 9293 3.10.7.4).
static __always_inline int wants_probe(struct config *cf, struct side *low, struct side *high,
				       __s64 now)
{
	__u32 both = low->flags & high->flags;
	__s64 last = low->last > high->last ? low->last : high->last;
	__s64 left = last + cf->life_established - now, pass = pass_ns(cf);
	__s64 within = (__s64)PROBE_WITHIN * 1000000000, every = (__s64)PROBE_EVERY * 1000000000;

	if (left < 0 || left > within || !(both & SIDE_SEEN) ||
	    !(both & SIDE_ACKED || low->flags & META_LOOSE))
		return 0;
	if (both & SIDE_FIN || (low->flags | high->flags) & SIDE_RST)
		return 0;
	return (__u64)left / every != (__u64)(left + pass) / every;
}

// surely_alive: the state has seen a packet so recently that it has not expired, whatever its other
// side holds. For TCP and SCTP one side is not enough: either end may have ended the connection.
static __always_inline int surely_alive(struct config *cf, struct side *low, __u8 proto, __s64 now)
{
	__s64 first = lifetime(cf, PHASE_OPENING, proto),
	      later = lifetime(cf, PHASE_ESTABLISHED, proto);

	return proto != PROTO_TCP && proto != PROTO_SCTP &&
	       now <= READ_ONCE(low->last) + (first < later ? first : later);
}

// is_orphan: the wire entry of a translation is left without the inner one. Each is checked once in
// about sixteen passes: halves are removed together, so only a race causes this.
static __always_inline int is_orphan(struct set *s, __u32 place, __s64 now)
{
	struct side *low = low_side(s, place);

	if (!(low->flags & META_WIRE) || ((__u64)now >> HINT_SHIFT & 15) != (place & 15) ||
	    now - low->created < NAT_YOUNG)
		return 0;
	return !exists(inner_of(s, place));
}

// sweep_at requests a probe of one state, or removes it if it has expired or its rule is gone.
__noinline int sweep_at(struct cpu *c, __u32 place, __u32 purge)
{
	struct config *cf = settings();
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;
	if (!c || !cf || !t)
		return 0;
	const struct packet *p = &c->packet;
	struct walk *walk = &c->walk;
	void *image = image_of(walk);
	__u64 tag = READ_ONCE(t->tag[way]);
	struct set *s = set_at(place / WAYS + depends_on(tag));
	if (!s || !image || (tag & TAG_MASK) != TAG_LIVE)
		return 0;
	struct side *low = low_side(s, way), *high = high_side(s, way);
	if (!purge && expired(cf, low, high, tag_proto(tag), p->now))
		return remove_state(c, place, tag, GONE_EXPIRED);
	if (low->rule == NAT_RULE)
		return !purge && is_orphan(s, place, p->now) &&
		       remove_state(c, place, tag, GONE_EXPIRED);
	if (!find_rule(walk, image, low->rule))
		return remove_state(c, place, tag, GONE_RULE);
	c->rule_in_force = low->rule;
	if (!purge && tag_proto(tag) == PROTO_TCP && event_wanted(cf, EVENT_PROBE) &&
	    wants_probe(cf, low, high, p->now))
		event_probe(cf, c, s, way, tag);
	return 0;
}

// make_hint computes until when the sweep can skip a set. It makes no hint if a state was added or
// removed since the last pass: in a busy set a hint is not worth its cost. A packet that ends a
// connection meanwhile clears the hint, and then no new one is written.
__noinline int make_hint(struct cpu *c, __u32 n)
{
	struct config *cf = settings();
	struct set *s = set_at(n);
	struct tag_line *t = tags_at(n);
	__u64 *hint = hint_at(n);
	if (!c || !cf || !s || !t || !hint)
		return 0;
	__s64 now = c->packet.now;
	__u64 fresh = hint_of(t, cf->epoch, 0);
	if ((__u32)READ_ONCE(*hint) != (__u32)fresh) {
		WRITE_ONCE(*hint, (__u32)fresh);
		return 0;
	}
	__s64 until = now + ((__s64)HINT_MAX << HINT_SHIFT),
	      before = pass_ns(cf) +
		       (event_wanted(cf, EVENT_PROBE) ? (__s64)PROBE_WITHIN * 1000000000 : 0);

	__sync_lock_test_and_set(hint, HINT_MAKING); // also a barrier: no side is read before
	for (int i = 0; i < WAYS; i++) {
		__u64 tag = READ_ONCE(t->tag[i]);
		if ((tag & TAG_MASK) != TAG_LIVE)
			continue;
		__s64 then = earliest(cf, low_side(s, i), high_side(s, i), tag, before);
		if (then < until)
			until = then;
	}
	if (until > now)
		__sync_val_compare_and_swap(hint, HINT_MAKING,
					    (__u32)fresh | (__u64)(until >> HINT_SHIFT) << 32);
	return 0;
}

// can_skip: the hint of a set is valid.
static __always_inline int can_skip(const struct cpu *c, __u32 n)
{
	struct config *cf = settings();
	struct tag_line *t = tags_at(n);
	__u64 *hint = hint_at(n);

	return cf && t && hint &&
	       hint_valid(READ_ONCE(*hint), hint_of(t, cf->epoch, c->packet.now));
}

// sweep_set looks at the states of a set and returns how many it removed. With `purge` it removes
// only those whose rule is gone. Most states stay, and have the rule of the one before: one cache
// line of each shows that.
__noinline int sweep_set(struct cpu *c, __u32 n, __u32 purge)
{
	struct config *cf = settings();
	struct set *s = set_at(n);
	struct tag_line *t = tags_at(n);
	int gone = 0;

	if (!c || !cf || !s || !t)
		return 0;
	for (int i = 0; i < WAYS; i++) {
		__u64 tag = READ_ONCE(t->tag[i]);
		struct side *low = low_side(s, i);
		if ((tag & TAG_MASK) != TAG_LIVE)
			continue;
		if (READ_ONCE(low->rule) == c->rule_in_force &&
		    (purge || surely_alive(cf, low, tag_proto(tag), c->packet.now)))
			continue;
		gone += sweep_at(c, n * WAYS + i, purge);
	}
	return gone;
}

struct sweep {
	__u32 next, sets, gone, purge;
};

static long sweep_one(__u32 index, void *ctx)
{
	struct sweep *w = ctx;
	struct cpu *c = this_cpu();

	if (!c || w->next + index >= w->sets)
		return 1;
	if (!w->purge && can_skip(c, w->next + index))
		return 0;
	int gone = sweep_set(c, w->next + index, w->purge);
	if (!gone && !w->purge)
		make_hint(c, w->next + index);
	w->gone += gone;
	return 0;
}

// need_cookies: SYN cookies, which are on, are still needed, as far as that is known.
static __always_inline int need_cookies(struct config *cf, struct gauge *g, __s64 now)
{
	__s64 since = now - g->looked;
	if (since < COOKIE_LOOK)
		return 1;
	__u64 sent = g->cookies_sent, kept = g->cookies_kept,
	      lost = sent - g->sent_before - (kept - g->kept_before);
	// A sample from too long ago does not describe the present.
	int fresh = since < 2 * COOKIE_LOOK;
	g->looked = now;
	g->sent_before = sent;
	g->kept_before = kept;
	__u64 would =
		(__s64)lost < 0 ? 0 : lost * ((__u64)cf->life_syn >> 20) / ((__u64)since >> 20);
	return !fresh || !cf->life_syn || would >= cf->max_half_open / COOKIES_TO ||
	       g->half_open - g->answered >= cf->max_half_open / COOKIES_TO;
}

// end_cookies ends SYN cookies when they are no longer needed, or the settings allow no new ones.
static __always_inline void end_cookies(struct config *cf, __s64 now)
{
	struct gauge *g = gauges_now();
	if (!g || g->cookies == COOKIES_OFF)
		return;
	if (g->cookies == COOKIES_ENDING) {
		if (now > g->cookies_until)
			__sync_val_compare_and_swap(&g->cookies, COOKIES_ENDING, COOKIES_OFF);
		return;
	}
	if (cf->cookies & COOKIE_USE && need_cookies(cf, g, now))
		return;
	g->cookies_until = now + COOKIE_LIFE;
	__sync_val_compare_and_swap(&g->cookies, COOKIES_ON, COOKIES_ENDING);
}

// check_clock corrects our own reading of the clock. The count of ticks advances a little before
// the clock. If this CPU lost its time slice in between, the two differ for as long, and the
// correction runs twice.
static __always_inline void check_clock(struct config *cf, __s64 now)
{
	__s64 ahead = coarse_now(cf) - now, most = 2 * cf->tick;

	if (unlikely(ahead > most || ahead < -most))
		cf->clock -= ahead;
}

// tick advances the hand.
static int tick(void *map, __u32 *key, struct clock_hand *hand)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	__u64 begin = bpf_ktime_get_ns();
	__u32 count = sets_per_tick(cf);
	c->packet.now = bpf_ktime_get_coarse_ns();
	struct sweep w = {.next = hand->next, .sets = cf->sets};
	c->walk.current = cf->current & CURRENT_SLOT;
	c->rule_in_force = 0;
	bpf_loop(count, sweep_one, &w, 0);
	hand->next += count;
	if (hand->next >= cf->sets) {
		hand->next = 0;
		if (hand->pass_began)
			hand->pass_took = c->packet.now - hand->pass_began;
		hand->pass_began = c->packet.now;
	}
	end_cookies(cf, c->packet.now);
	check_clock(cf, c->packet.now);
	hand->gone += w.gone;
	hand->ticks++;
	__u64 took = bpf_ktime_get_ns() - begin;
	hand->worked += took;
	if (took > hand->longest)
		hand->longest = took;
	bpf_timer_start(&hand->timer, TICK_MS * 1000000, 0);
	return 0;
}

// start_ticking starts the timer, or gives a running one the current program.
static __always_inline long start_ticking(void)
{
	__u32 zero = 0;
	struct clock_hand *hand = bpf_map_lookup_elem(&clock_hands, &zero);

	if (!hand)
		return -1;
	bpf_timer_init(&hand->timer, &clock_hands,
		       CLOCK_MONOTONIC); // fails when that was done before
	if (bpf_timer_set_callback(&hand->timer, tick) < 0)
		return -1;
	return bpf_timer_start(&hand->timer, TICK_MS * 1000000, 0);
}
