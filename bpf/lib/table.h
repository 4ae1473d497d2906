// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The set-associative table: hashing, finding, claiming and removing entries. A keyed hash names
// two sets of eight entries each, so the work for each packet is bounded, whatever an attacker
// sends.
//
// An entry is claimed by compare-and-swap of its tag, written, and then published by setting the
// tag live. A removed entry rests for some milliseconds before it is used again, so that a packet
// on another CPU that found it just before does not write into its successor. Two CPUs may insert
// one key at once; each looks again after publishing, and the entry at the lower place stays. The
// fast path looks before (fast_new).
#pragma once

#include "pod.h"
#include "sctp.h"
#include "source.h"

enum { TICK_SHIFT = 20, REST_TICKS = 32 }; // a tick is about a millisecond

// hash5 hashes five words with the keys at s: NH (Black et al., UMAC, 1999), whose collisions an
// attacker who does not know the keys can not construct, and a finalizer to spread the bits.
__always_inline __u64 hash5(const __u64 *s, __u64 a, __u64 b, __u64 c, __u64 d, __u64 e)
{
	__u64 h = (__u64)((__u32)a + (__u32)s[0]) * ((__u32)(a >> 32) + (__u32)s[1]);
	h += (__u64)((__u32)b + (__u32)s[2]) * ((__u32)(b >> 32) + (__u32)s[3]);
	h += (__u64)((__u32)c + (__u32)s[4]) * ((__u32)(c >> 32) + (__u32)s[5]);
	h += (__u64)((__u32)d + (__u32)s[6]) * ((__u32)(d >> 32) + (__u32)s[7]);
	h += (__u64)((__u32)e + (__u32)s[8]) * ((__u32)(e >> 32) + (__u32)s[9]);
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ULL;
	h ^= h >> 32;
	return h;
}

__always_inline __u32 first_set(__u64 hash, __u32 sets)
{
	return (__u64)(__u32)hash * sets >> 32;
}

__always_inline __u32 second_set(__u64 hash, __u32 sets)
{
	return (hash >> 32) * sets >> 32;
}

// free_tag is the tag of an entry that ends now.
__always_inline __u64 free_tag(__s64 now)
{
	return (((__u64)now >> TICK_SHIFT) + REST_TICKS) << 2 | TAG_FREE;
}

// vacant: an entry with this tag may be claimed.
__always_inline int vacant(__u64 tag, __s64 now)
{
	return (tag & TAG_MASK) == TAG_FREE && tag >> 2 <= (__u64)now >> TICK_SHIFT;
}

// tag_of is the tag of a live state with these ports, protocol and flow name (`names`): with bits
// of the hash that do not choose its sets or its way, or entries of one set would share them.
__always_inline __u64 tag_of(__u64 names, __u64 hash)
{
	return names | (hash >> 32 & 0xfff) << 4 | TAG_LIVE;
}

// home_way is where in its first set a new state goes if that entry is vacant.
__always_inline __u32 home_way(__u64 hash)
{
	return hash & (WAYS - 1);
}

__always_inline struct set *set_at(__u32 n)
{
	return bpf_map_lookup_elem(&states, &n);
}

__always_inline struct tag_line *tags_at(__u32 n)
{
	return bpf_map_lookup_elem(&tags, &n);
}

// prefetch reads a word of each cache line of the entry where the state of a hash most likely lies,
// or would. Nothing waits for these loads: the lines arrive together with those of the tags, which
// show whether the guess was right.
__always_inline void prefetch(__u32 first, __u64 hash)
{
	struct set *s = set_at(first);
	__u32 way = home_way(hash);

	if (s) {
		READ_ONCE(s->addr[way].low_hi);
		READ_ONCE(s->side[way * 2].last);
		READ_ONCE(s->side[way * 2 + 1].last);
	}
}

// key_hash sets p->hash and p->tag for p->key with a flow name.
__always_inline void key_hash(struct pkt *p, struct config *cf, __u32 flow)
{
	struct key *k = &p->key;

	if (p->hashed && k->flow == flow)
		return;
	p->hashed = 1;
	p->spare = 0;
	k->flow = flow;
	__u64 rest = (__u64)k->ports << 32 | (__u32)k->proto << 24 | (__u32)k->flow << 16;

	p->hash = hash5(cf->seed, k->low_hi, k->low_lo, k->high_hi, k->high_lo, rest);
	p->tag = tag_of(rest, p->hash);
}

__always_inline int same_ends(struct set *s, __u32 way, struct key *k)
{
	way &= WAYS - 1;
	return s->addr[way].low_lo == k->low_lo && s->addr[way].high_lo == k->high_lo &&
	       s->addr[way].low_hi == k->low_hi && s->addr[way].high_hi == k->high_hi;
}

__always_inline struct side *low_side(struct set *s, __u32 way)
{
	return &s->side[(way & (WAYS - 1)) * 2];
}

__always_inline struct side *high_side(struct set *s, __u32 way)
{
	return &s->side[(way & (WAYS - 1)) * 2 + 1];
}

__always_inline __u8 tag_proto(__u64 tag)
{
	return tag >> 24;
}

// lowest returns the number of the lowest bit set in v, which is not 0: the count of the bits below
// it, without a branch.
__always_inline __u32 lowest(__u64 v)
{
	__u64 x = (v & -v) - 1;

	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return x * 0x0101010101010101ULL >> 56;
}

// same_tag compares tags of live entries, whether half-open or not, moving or not.
__always_inline int same_tag(__u64 a, __u64 b)
{
	return !((a ^ b) & ~(__u64)(TAG_HALF_OPEN | TAG_ANSWERED | (TAG_LIVE ^ TAG_MOVING)));
}

// fast_claim and slow_claim are the tags of an entry while it is filled: by fast_new, or by the
// slow path, which looks for duplicates when it is live.
__always_inline __u64 fast_claim(__u64 tag)
{
	return (tag & TAG_IDENTITY) | TAG_HALF_OPEN;
}

__always_inline __u64 slow_claim(__u64 tag)
{
	return tag & TAG_IDENTITY;
}

// find_in looks for p->key, whose tag is in a line of tags, among the entries of set n, and sets
// p->place.
__always_inline int find_in(struct pkt *p, struct tag_line *t, __u32 n)
{
	__u64 tag = p->tag;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 have = READ_ONCE(t->tag[i]);
		if (same_tag(have, tag)) {
			// the entry is read after the tag that published it
			__u32 in = n + depends_on(have);
			struct set *s = set_at(in);
			if (s && same_ends(s, i, &p->key)) {
				p->place = in * WAYS + i;
				return 1;
			}
		}
	}
	return 0;
}

// vacancies returns a bit for each vacant entry of a set, without a branch: which ones are vacant
// is hard to predict.
__always_inline __u64 vacancies(struct tag_line *t, __u64 tick)
{
	__u64 taken = 0;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 tag = READ_ONCE(t->tag[i]);
		__u64 later = tick - (tag >> 2);
		opaque(later); // or the compiler makes branches of it: 2^16 paths
		taken |= ((tag & TAG_MASK) + (later >> 63) + 7) >> 3 << i;
	}
	return taken ^ ((1 << WAYS) - 1);
}

// count_bits counts the bits of two bytes, each in a byte of its own.
__always_inline __u32 count_bits(__u32 v)
{
	v -= v >> 1 & 0x5555;
	v = (v & 0x3333) + (v >> 2 & 0x3333);
	return (v + (v >> 4)) & 0x0f0f;
}

// find_spare sets p->spare to where a state for p->key could lie: at its home way in its first set,
// which prefetch has loaded, or else in the emptier of its two sets, a and b, which fills the table
// evenly. It loads the cache lines that such a state would write while the rules are evaluated.
__always_inline void find_spare(struct pkt *p, __u32 sets, struct tag_line *a, struct tag_line *b)
{
	__u32 an = first_set(p->hash, sets), bn = second_set(p->hash, sets);
	__u32 usual = home_way(p->hash);

	if (vacant(READ_ONCE(a->tag[usual]), p->now)) {
		p->spare = an * WAYS + usual + 1;
		return;
	}
	__u64 tick = (__u64)p->now >> TICK_SHIFT;
	__u32 in_a = vacancies(a, tick), in_b = vacancies(b, tick),
	      both = count_bits(in_a | in_b << WAYS);
	int use_a = (both & 0xff) >= both >> 8;
	__u32 in = use_a ? in_a : in_b, n = use_a ? an : bn;

	if (!in)
		return;
	__u32 way = count_bits((in & -in) - 1) & (WAYS - 1);
	p->spare = n * WAYS + way + 1;
	struct set *s = set_at(n);
	if (s) {
		READ_ONCE(s->addr[way].low_hi);
		READ_ONCE(low_side(s, way)->last);
		READ_ONCE(high_side(s, way)->last);
	}
}

// scout is find_spare, and returns 0.
__noinline int scout(__u32 sets)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct tag_line *a = tags_at(first_set(c->p.hash, sets)),
			*b = tags_at(second_set(c->p.hash, sets));
	if (a && b)
		find_spare(&c->p, sets, a, b);
	return 0;
}

// find looks for p->key with p->hash and p->tag in its two sets, and sets p->place.
__always_inline int find(struct pkt *p, struct config *cf)
{
	__u32 an = first_set(p->hash, cf->sets), bn = second_set(p->hash, cf->sets);
	struct tag_line *a = tags_at(an), *b = tags_at(bn);

	if (!a || !b)
		return 0;
	prefetch(an, p->hash);
	if (find_in(p, a, an) || find_in(p, b, bn))
		return 1;
	scout(cf->sets);
	return 0;
}

enum removal {
	GONE_EXPIRED,
	GONE_RECYCLED,
	GONE_RECLAIMED,
	GONE_RULE,
	GONE_DELETED,
	GONE_DOUBLE,
	GONE_SOURCE
};

// count_states adds n to the number of states: to this CPU's share first, so that CPUs rarely touch
// the common gauge.
__always_inline void count_states(struct cpu *c, struct config *cf, __s64 n)
{
	__u32 zero = 0;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);
	__s64 pending = c->pending + n, batch = cf->batch;

	if (g && (pending >= batch || pending <= -batch)) {
		__sync_fetch_and_add(&g->states, pending);
		pending = 0;
	}
	c->pending = pending;
}

__always_inline void count_half_open(__s64 n)
{
	__u32 zero = 0;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);

	if (g)
		__sync_fetch_and_add(&g->half_open, n);
}

// originator returns the hash of the source that a half-open state counts for. Translations do not
// count as half-open: the states that they belong to do.
__always_inline __u64 originator(struct config *cf, struct set *s, __u32 way)
{
	struct side *low = low_side(s, way);

	way &= WAYS - 1;
	int made = (low->flags & META_MADE) != 0;
	return source_hash(cf, off_link(made ? s->addr[way].low_hi : s->addr[way].high_hi),
			   made ? s->addr[way].low_lo : s->addr[way].high_lo);
}

__always_inline void count_answered(__s64 n)
{
	__u32 zero = 0;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);

	if (g)
		__sync_fetch_and_add(&g->answered, n);
}

// mark_answered sets in the tag of a half-open state that it was answered: such states are evicted
// first, and SYN cookies do not begin because of them.
__noinline int mark_answered(__u32 place)
{
	struct tag_line *t = tags_at(place / WAYS);

	if (!t)
		return 0;
	__u64 tag = READ_ONCE(t->tag[place % WAYS]);
	if ((tag & (TAG_MASK | TAG_HALF_OPEN | TAG_ANSWERED)) != (TAG_LIVE | TAG_HALF_OPEN))
		return 0;
	if (__sync_val_compare_and_swap(&t->tag[place % WAYS], tag, tag | TAG_ANSWERED) == tag)
		count_answered(1);
	return 0;
}

// uncount_half_open counts one half-open state less, of a source and with a tag.
__always_inline void uncount_half_open(__u64 source, __u64 tag)
{
	count_half_open(-1);
	if (tag & TAG_ANSWERED)
		count_answered(-1);
	if (source) {
		struct config *cf = settings();
		if (cf)
			leave_source(cf, source);
	}
}

// promote takes a state out of the half-open ones. The tag decides whether it is one of them, so
// that promotion, removal and a move exclude each other; the flag is only a hint.
__noinline int promote(__u32 place)
{
	__u32 way = place % WAYS;
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);

	if (!s || !t || !cf)
		return 0;
	__u64 tag = READ_ONCE(t->tag[way]);
	if ((tag & TAG_MASK) != TAG_LIVE)
		return 0;
	if (tag & TAG_HALF_OPEN) {
		__u64 source = originator(cf, s, way);
		if (__sync_val_compare_and_swap(
			    &t->tag[way], tag, tag & ~(__u64)(TAG_HALF_OPEN | TAG_ANSWERED)) != tag)
			return 0;
		uncount_half_open(source, tag);
	}
	__sync_fetch_and_and(&low_side(s, way)->flags, ~META_HALF_OPEN);
	return 1;
}

__always_inline struct track *track_at(__u32 place)
{
	__u32 n = place / WAYS;
	struct track_set *s = bpf_map_lookup_elem(&tracks, &n);
	return s ? &tested(s)->track[place % WAYS] : NULL;
}

// add_track adds to what a track counts if the track is still of an era, and reports whether it is.
__always_inline int add_track(struct track *t, __u32 era, __u64 n)
{
	if (!t || READ_ONCE(t->era) != era)
		return 0;
	__u64 old = __sync_fetch_and_add(&t->held, n);
	if ((__u8)(old >> TRACK_ERA) == (__u8)era)
		return 1;
	__sync_fetch_and_add(&t->held, -n); // another tuple has just taken it
	return 0;
}

// leave_track stops counting a state in its track, once.
__always_inline void leave_track(struct set *s, __u32 way)
{
	struct side *low = low_side(s, way);
	__u32 place = READ_ONCE(low->track), era = high_side(s, way)->created;

	if (!(READ_ONCE(low->flags) & META_TRACKED))
		return;
	__u32 flags = __sync_fetch_and_and(&low->flags, ~(META_TRACKED | META_KEEPS));
	if (flags & META_TRACKED)
		add_track(track_at(place - 1), era,
			  -(1 + (flags & META_KEEPS ? TRACK_ONE_PROVED : 0)));
}

// count_nat adds n to the number of translations: of all, and of the pod that `track` names.
__always_inline void count_nat(__u32 track, __s32 n)
{
	__u32 zero = 0, pod = track >> NAT_POD_SHIFT;
	struct gauge *g = bpf_map_lookup_elem(&gauges, &zero);

	if (g) {
		__sync_fetch_and_add(&g->nats, n);
		if (n > 0)
			__sync_fetch_and_add(&g->nats_made, n);
	}
	if (!pod)
		return;
	pod--;
	struct nat_count *of = bpf_map_lookup_elem(&nat_counts, &pod);
	if (of)
		__sync_fetch_and_add(&of->nats, n);
}

// free_entry frees the place of a translation's entry.
__always_inline void free_entry(struct cpu *c, struct config *cf, struct set *s, struct tag_line *t,
				__u32 way, __u32 why)
{
	way &= WAYS - 1;
	if (!(low_side(s, way)->flags & META_WIRE))
		count_nat(high_side(s, way)->track, -1);
	__sync_lock_test_and_set(&t->tag[way], free_tag(c->p.now));
	count_states(c, cf, -1);
	c->removed[why & 7]++;
}

// remove_partner ends the other half of a translation together with the one at a place.
__always_inline void remove_partner(struct cpu *c, struct config *cf, struct side *low, __u32 place,
				    __u32 why)
{
	__u32 partner = low->track, way = partner & (WAYS - 1);
	struct tag_line *t = tags_at(partner / WAYS);
	__u64 tag = t ? READ_ONCE(t->tag[way]) : 0;
	struct set *o = set_at(partner / WAYS + depends_on(tag));

	if (!o || !t)
		return;
	struct side *other = low_side(o, way);
	if ((tag & TAG_MASK) != TAG_LIVE || other->rule != NAT_RULE || other->track != place ||
	    other->created != low->created)
		return;
	if (__sync_val_compare_and_swap(&t->tag[way], tag, TAG_CLAIMED) == tag)
		free_entry(c, cf, o, t, way, why);
}

// remove_state ends the state at a place if its tag is still the one given, and reports whether it
// did.
__noinline int remove_state(__u32 place, __u64 tag, __u32 why)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;

	if (!c || !cf || !s || !t || (tag & TAG_MASK) != TAG_LIVE)
		return 0;
	struct side *low = low_side(s, way);
	__u64 have = READ_ONCE(t->tag[way]);
	if ((have & TAG_MASK) != TAG_LIVE || !same_tag(have, tag))
		return 0;
	// Until the entry is freed no CPU may claim the place. The state may just have been
	// answered or promoted, which changes its tag.
	if (__sync_val_compare_and_swap(&t->tag[way], have, TAG_CLAIMED) != have) {
		have = READ_ONCE(t->tag[way]);
		if ((have & TAG_MASK) != TAG_LIVE || !same_tag(have, tag) ||
		    __sync_val_compare_and_swap(&t->tag[way], have, TAG_CLAIMED) != have)
			return 0;
	}
	if (low->rule == NAT_RULE) { // both halves at once
		remove_partner(c, cf, low, place, why);
		free_entry(c, cf, s, t, way, why);
		return 1;
	}
	event_end(cf, c, s, way, tag);
	if (have & TAG_HALF_OPEN)
		uncount_half_open(originator(cf, s, way), have);
	leave_track(s, way);
	__sync_lock_test_and_set(&t->tag[way], free_tag(c->p.now));
	count_states(c, cf, -1);
	c->removed[why & 7]++;
	return 1;
}
