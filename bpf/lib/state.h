// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Look-up of states, docs/design/0003-evaluation.md section 4.
#pragma once

#include "sweep_hint.h"
#include "track.h"

enum look { LOOK_MISS, LOOK_HIT, LOOK_UNTOUCHED, LOOK_DROP = 16 }; // LOOK_DROP + reason

__always_inline int look_result(int r)
{
	switch (r) {
	case RES_HIT:
		return LOOK_HIT;
	case RES_UNTOUCHED:
		return LOOK_UNTOUCHED;
	case RES_BAD_FLAGS:
		return LOOK_DROP + REASON_TCP_FLAGS;
	case RES_BAD_RST:
		return LOOK_DROP + REASON_TCP_RST;
	case RES_BAD_ACK:
		return LOOK_DROP + REASON_TCP_ACK;
	case RES_BAD_WINDOW:
		return LOOK_DROP + REASON_TCP_WINDOW;
	case RES_BAD_TAG:
		return LOOK_DROP + REASON_SCTP_TAG;
	}
	return LOOK_DROP + REASON_ICMP_SEQ;
}

// slot_of returns 1 + the slot of a rule by its id, or 0 if the Program has no such rule.
__always_inline __u32 slot_of(struct pkt *p, struct header *h, __u32 id)
{
	__u32 index = id & 0xffff;
	struct row *r = row_of(p, h->slots + index / ROW_U32);
	if (!r)
		return 0;
	__u32 v = ((__u32 *)r)[index % ROW_U32];
	return v >> 16 == id >> 16 && v >> 16 ? (v & 0xffff) + 1 : 0;
}

// owner_of returns the rule with an id and sets p->slot. Most rules lie at the slot of their index:
// that is tried first.
__always_inline struct code *owner_of(struct pkt *p, void *image, __u32 id)
{
	__u32 index = id & 0xffff;
	struct code *r = code_in(image, index);

	if (r && r->id == id) {
		p->slot = index;
		return r;
	}
	struct header *h = (struct header *)row_in(image, 0);
	__u32 slot = h ? slot_of(p, h, id) : 0;
	if (!slot)
		return NULL;
	p->slot = slot - 1;
	return code_in(image, slot - 1);
}

// masked_tuple sets m to what a limit counts by. ports are those of the source << 16 | of the
// destination.
__always_inline void masked_tuple(struct masked *m, struct code *r, struct address *src,
				  struct address *dst, __u32 ports, __u8 proto)
{
	__u8 mask = r->mask;

	m->src_hi = mask & LIMIT_SRC_ADDR ? src->hi : 0;
	m->src_lo = mask & LIMIT_SRC_ADDR ? src->lo : 0;
	m->dst_hi = mask & LIMIT_DST_ADDR ? dst->hi : 0;
	m->dst_lo = mask & LIMIT_DST_ADDR ? dst->lo : 0;
	m->ports = ports & ((mask & LIMIT_SRC_PORT ? 0xffff0000 : 0) |
			    (mask & LIMIT_DST_PORT ? 0xffff : 0));
	m->rule = r->id;
	m->proto = proto;
	m->pad = 0;
}

// mask_state sets p->masked for a state that is there.
__always_inline void mask_state(struct pkt *p, struct code *r, struct address *low,
				struct address *high, __u32 ports, __u8 proto, int made)
{
	if (made)
		masked_tuple(&p->masked, r, low, high, ports, proto);
	else
		masked_tuple(&p->masked, r, high, low, ports << 16 | ports >> 16, proto);
	p->masked.src_hi = off_link(p->masked.src_hi);
	p->masked.dst_hi = off_link(p->masked.dst_hi);
}

// take_track counts a state in the track that was entered last.
__always_inline void take_track(struct pkt *p, struct side *low, struct side *high, __u32 place)
{
	low->track = place;
	high->created = p->track_era;
}

// mask_at sets p->masked for the state at a place, and returns the limit of its rule, 0 if that is
// gone.
__noinline __u32 mask_at(__u32 place)
{
	struct cpu *c = this_cpu();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;
	if (!c || !s || !t)
		return 0;
	struct pkt *p = &c->p;
	void *image = image_of(p);
	struct side *low = low_side(s, way);
	__u32 slot = p->slot; // the walk is at this rule
	struct code *r = image ? owner_of(p, image, low->rule) : NULL;
	__u64 tag = READ_ONCE(t->tag[way]);
	p->slot = slot;
	if (!r)
		return 0;
	mask_state(p, r, (struct address *)&s->addr[way].low_hi,
		   (struct address *)&s->addr[way].high_hi, tag >> 32, tag_proto(tag),
		   low->flags & META_MADE);
	return r->limit;
}

// keep_track counts a state that has proved itself as proved in its track, which from now on is not
// evicted. If the track was given to another tuple, the state enters its own again; if there is no
// free track, or the limit is reached, the state is removed, as half-open states are.
__noinline int keep_track(__u32 place)
{
	struct cpu *c = this_cpu();
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);
	__u32 way = place % WAYS;
	if (!c || !s || !t)
		return 0;
	struct pkt *p = &c->p;
	struct side *low = low_side(s, way), *high = high_side(s, way);
	if (!(READ_ONCE(low->flags) & META_TRACKED))
		return 0;
	if (!add_track(track_at(low->track - 1), high->created, TRACK_ONE_PROVED)) {
		__u64 tag = READ_ONCE(t->tag[way]);
		__u32 limit = mask_at(place), at = limit ? enter_limit(limit) : 0;
		if (!limit)
			return 0;
		if (!at) {
			__sync_fetch_and_and(&low->flags, ~META_TRACKED);
			return remove_state(place, tag, GONE_RECLAIMED);
		}
		take_track(p, low, high, at);
		if (!add_track(track_at(at - 1), p->track_era, TRACK_ONE_PROVED))
			return 0;
	}
	// It may have left its track at this moment.
	if (!(__sync_fetch_and_or(&low->flags, META_KEEPS) & META_TRACKED))
		add_track(track_at(low->track - 1), high->created, -TRACK_ONE_PROVED);
	return 0;
}

// new_phase follows a change of a state: one that has proved itself is no longer half-open, and one
// that is closed counts in no track. It sets p->proved if keep_track has to follow: stacks are too
// deep here.
__always_inline void new_phase(struct pkt *p, struct set *s, __u32 place, __u8 proto)
{
	struct side *low = low_side(s, place), *high = high_side(s, place);
	int phase = phase_of(low, high, proto);
	int over = phase == PHASE_CLOSED || phase == PHASE_RESET;

	if (low->flags & META_HALF_OPEN && phase != PHASE_OPENING) {
		if (phase == PHASE_ANSWERED)
			mark_answered(place);
		else if (promote(place) && low->flags & META_TRACKED && !over)
			p->proved = place + 1;
	}
	if (over)
		leave_track(s, place);
}

// keep_proved completes what new_phase has begun, before the packet looks another state up, or
// makes one, and at its end.
__always_inline void keep_proved(struct pkt *p)
{
	__u32 place = p->proved;

	if (likely(!place))
		return;
	p->proved = 0;
	keep_track(place - 1);
}

// step_rare is step for SCTP and for ICMP errors.
__noinline int step_rare(__u32 place)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct set *s = set_at(place / WAYS);
	if (!c || !cf || !s)
		return LOOK_MISS;
	struct pkt *p = &c->p;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = p->from ? high : low, *o = p->from ? low : high;

	if (p->is_error)
		return look_result(step_error(d, o, p, cf->liberal || d->flags & META_LIBERAL));
	int r = step_sctp(d, o, p);
	if (r == RES_RECYCLE) {
		remove_state(place, p->tag, GONE_RECYCLED);
		return LOOK_MISS;
	}
	if (r == RES_HIT && low->flags & (META_HALF_OPEN | META_TRACKED))
		new_phase(p, s, place, PROTO_SCTP);
	return look_result(r);
}

// unproved: this side, which began the flow, has not sent since the other has answered.
__always_inline int unproved(__u32 flags)
{
	return (flags & (META_PEER | META_MADE | SIDE_PROVED)) == (META_PEER | META_MADE);
}

// calls_port: this side sends to a published port. So what it sends to the pod itself belongs to
// another flow. The fast path sees only such packets.
__always_inline int calls_port(__u32 flags)
{
	return (flags & META_CALLER) == META_CALLER;
}

// strays: the packet comes to a published port and the flow of the state at a place does not, or
// the other way round, although in the pod both have the same addresses and ports; and the state
// does not give way to the packet. It needs what create.h has.
__noinline int strays(__u32 place);

// step advances a live state by the packet, and returns LOOK_MISS if the packet does not belong to
// it.
__always_inline int step(struct config *cf, struct pkt *p, struct set *s, __u32 way)
{
	struct side *low = low_side(s, way), *high = high_side(s, way);
	struct side *d = p->from ? high : low, *o = p->from ? low : high;
	__u8 proto = p->key.proto;
	__u32 mine = d->flags;
	int r;

	if (mine & META_PEER && !unproved(mine) && !p->is_error &&
	    p->now <= d->last + lifetime(cf, PHASE_ESTABLISHED, proto)) {
		// No TCP, SCTP or error; both ends were seen, and not long ago: the other side's
		// line need not be read.
		touch(d, p);
		return LOOK_HIT;
	}
	if (unlikely(expired(cf, low, high, proto, p->now))) {
		remove_state(p->place, p->tag, GONE_EXPIRED);
		return LOOK_MISS;
	}
	if (unlikely(p->is_error || proto == PROTO_SCTP))
		return step_rare(p->place);
	if (proto == PROTO_TCP) {
		r = step_tcp(d, o, p);
		// A connection ends by a reset, or by what acknowledges the second FIN.
		if (p->tcp_flags & TH_RST || d->flags & o->flags & SIDE_FIN)
			clear_hint(p->place);
		if (r > RES_BAD_FLAGS && (cf->liberal || mine & META_LIBERAL))
			r = RES_UNTOUCHED;
	} else {
		touch(d, p);
		if (o->flags & SIDE_SEEN) {
			set_flags(d, mine & META_MADE ? META_PEER | SIDE_PROVED : META_PEER);
			set_flags(o, META_PEER);
		}
		r = RES_HIT;
	}
	if (r == RES_RECYCLE) {
		remove_state(p->place, p->tag, GONE_RECYCLED);
		return LOOK_MISS;
	}
	if (r == RES_HIT && low->flags & (META_HALF_OPEN | META_TRACKED))
		new_phase(p, s, p->place, proto);
	return look_result(r);
}

// record_first records the state of a flow name for the second evaluation of the same packet, which
// neither looks it up nor advances it again.
__always_inline void record_first(struct pkt *p, __u32 flow, __u8 look, __u32 rule)
{
	p->first_place = READ_ONCE(p->place);
	p->first_flow = flow + 1;
	p->first_look = look;
	p->first_rule = rule;
	p->first_new = 0;
}

// was_missed: the fast path has found no state of a flow name. Hash and tag of the key are then
// set.
__always_inline int was_missed(struct pkt *p, __u32 flow)
{
	if (p->missed != flow + 1)
		return 0;
	p->missed = 0;
	p->hashed = 1;
	p->key.flow = flow;
	return 1;
}

// look_up looks for the packet's state of a flow name. On anything but a miss p->slot is the slot
// of the state's rule.
__noinline int look_up(__u32 flow)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return LOOK_MISS;
	struct pkt *p = &c->p;
	keep_proved(p);
	void *image = image_of(p);
	if (!image || p->keyed != KEY_SET)
		return LOOK_MISS;
	if (p->second && p->first_flow == flow + 1 && owner_of(p, image, p->first_rule))
		return p->first_look;
	if (was_missed(p, flow))
		return LOOK_MISS;
	key_hash(p, cf, flow);
	if (!find(p, cf))
		return LOOK_MISS;
	__u32 place = p->place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return LOOK_MISS;
	struct side *d = p->from ? high_side(s, place) : low_side(s, place);
	struct code *owner = owner_of(p, image, d->rule);
	if (!owner) {
		remove_state(place, p->tag, GONE_RULE);
		return LOOK_MISS;
	}
	__u32 rule = owner->id;
	struct tag_line *t = tags_at(place / WAYS);
	// another flow has taken the entry meanwhile
	if (!t || !same_tag(READ_ONCE(t->tag[place % WAYS]), p->tag))
		return LOOK_MISS;
	__u32 published = READ_ONCE(d->flags) & META_PUBLISHED;
	published |= READ_ONCE(p->make);
	opaque(published); // or what the verifier knows of the flags makes paths
	if (unlikely(published) && strays(place))
		return LOOK_DROP + REASON_NAT_PORTS;
	int look = step(cf, p, s, place);
	if (look == LOOK_HIT || look == LOOK_UNTOUCHED)
		record_first(p, flow, look, rule);
	return look;
}
