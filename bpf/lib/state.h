// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Looking states up, docs/design/0003-judgement.md section 4.
#pragma once

#include "track.h"

enum look { LOOK_MISS, LOOK_HIT, LOOK_UNTOUCHED, LOOK_DROP = 16 }; // LOOK_DROP + reason

inline_always int look_result(int r)
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
inline_always __u32 slot_of(struct pkt *p, struct header *h, __u32 id)
{
	__u32 index = id & 0xffff;
	struct row *r = row_of(p, h->slots + index / ROW_U32);
	if (!r)
		return 0;
	__u32 v = ((__u32 *)r)[index % ROW_U32];
	return v >> 16 == id >> 16 && v >> 16 ? (v & 0xffff) + 1 : 0;
}

// new_phase follows a state that moved: one that has proved itself is no longer half-open, and one that is closed counts in no track.
inline_always void new_phase(struct side *low, struct side *high, __u8 proto)
{
	int phase = phase_of(low, high, proto);

	if (phase != PHASE_OPENING && low->flags & META_EMBRYO)
		hatch(low);
	if (phase == PHASE_CLOSED || phase == PHASE_RESET)
		leave_track(low);
}

// step moves a live state by the packet, and returns LOOK_MISS if the packet has nothing to do with it.
inline_always int step(struct config *cf, struct pkt *p, struct set *s, __u32 way)
{
	struct side *low = low_side(s, way), *high = high_side(s, way);
	struct side *d = p->from ? high : low, *o = p->from ? low : high;
	__u8 proto = p->key.proto;
	__u32 mine = d->flags;
	int r;

	if (mine & META_PEER && !p->is_error && p->now <= d->last + lifetime(cf, PHASE_ESTABLISHED, proto)) {
		// No TCP, SCTP or error; both ends were seen, and not long ago: the other side's line need not be read.
		touch(d, p);
		return LOOK_HIT;
	}
	if (expired(cf, low, high, proto, p->now)) {
		remove_state(p->place, p->tag, GONE_EXPIRED);
		return LOOK_MISS;
	}
	int liberal = cf->liberal || mine & META_LIBERAL;
	if (p->is_error)
		return look_result(step_error(d, o, p, liberal));
	if (proto == PROTO_TCP) {
		r = step_tcp(d, o, p);
		if (liberal && r > RES_BAD_FLAGS)
			r = RES_UNTOUCHED;
	} else if (proto == PROTO_SCTP) {
		r = step_sctp(d, o, p);
	} else {
		touch(d, p);
		if (o->flags & SIDE_SEEN)
			set_flags(d, META_PEER);
		r = RES_HIT;
	}
	if (r == RES_RECYCLE) {
		remove_state(p->place, p->tag, GONE_RECYCLED);
		return LOOK_MISS;
	}
	if (r == RES_HIT && low->flags & (META_EMBRYO | META_TRACKED))
		new_phase(low, high, proto);
	return look_result(r);
}

// look_up looks for the packet's state of a flow name. On anything but a miss p->slot is the slot of the state's rule.
checked_once int look_up(__u32 flow)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return LOOK_MISS;
	struct pkt *p = &c->p;
	struct header *h = header_of(p);
	if (!h || p->keyed != KEY_SET)
		return LOOK_MISS;
	p->key.flow = flow;
	key_hash(p, cf);
	__u32 an = first_set(p->hash, cf->sets), bn = second_set(p->hash, cf->sets);
	struct set *a = set_at(an), *b = set_at(bn);
	if (!a || !b || !find(p, a, an, b, bn))
		return LOOK_MISS;
	__u32 place = p->place;
	struct set *s = set_at(place / WAYS);
	if (!s)
		return LOOK_MISS;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	p->found_rule = p->from ? high->rule : low->rule;
	__u32 slot = slot_of(p, h, p->found_rule);
	if (!slot) {
		remove_state(place, p->tag, GONE_RULE);
		return LOOK_MISS;
	}
	p->slot = slot - 1;
	return step(cf, p, s, place);
}
