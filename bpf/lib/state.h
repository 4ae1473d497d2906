// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Looking states up, docs/design/0003-judgement.md section 4.
#pragma once

#include "note.h"
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

// owner_of returns the rule with an id and sets p->slot. Most rules lie at the slot of their index: that is tried first.
inline_always struct code *owner_of(struct pkt *p, void *image, __u32 id)
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

// new_phase follows a state that moved: one that has proved itself is no longer half-open, and one that is closed counts in no track.
inline_always void new_phase(struct set *s, __u32 place, __u8 proto)
{
	struct side *low = low_side(s, place), *high = high_side(s, place);
	int phase = phase_of(low, high, proto);

	if (phase != PHASE_OPENING && low->flags & META_EMBRYO)
		hatch(place);
	if (phase == PHASE_CLOSED || phase == PHASE_RESET)
		leave_track(low);
}

// step_rare is step for SCTP and for ICMP errors.
checked_once int step_rare(__u32 place)
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
	if (r == RES_HIT && low->flags & (META_EMBRYO | META_TRACKED))
		new_phase(s, place, PROTO_SCTP);
	return look_result(r);
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
			forget_note(p->place);
		if (r > RES_BAD_FLAGS && (cf->liberal || mine & META_LIBERAL))
			r = RES_UNTOUCHED;
	} else {
		touch(d, p);
		if (o->flags & SIDE_SEEN) {
			set_flags(d, META_PEER);
			set_flags(o, META_PEER);
		}
		r = RES_HIT;
	}
	if (r == RES_RECYCLE) {
		remove_state(p->place, p->tag, GONE_RECYCLED);
		return LOOK_MISS;
	}
	if (r == RES_HIT && low->flags & (META_EMBRYO | META_TRACKED))
		new_phase(s, p->place, proto);
	return look_result(r);
}

// remember notes the state of a flow name for the second judgement of the same packet, which neither searches nor moves it again.
inline_always void remember(struct pkt *p, __u32 flow, __u8 look, __u32 rule)
{
	p->memo_place = once(p->place);
	p->memo_flow = flow + 1;
	p->memo_look = look;
	p->memo_rule = rule;
}

// was_missed: the short way has found no state of a flow name. What follows from the key is then in place.
inline_always int was_missed(struct pkt *p, __u32 flow)
{
	if (p->missed != flow + 1)
		return 0;
	p->missed = 0;
	p->hashed = 1;
	p->key.flow = flow;
	return 1;
}

// look_up looks for the packet's state of a flow name. On anything but a miss p->slot is the slot of the state's rule.
checked_once int look_up(__u32 flow)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return LOOK_MISS;
	struct pkt *p = &c->p;
	void *image = image_of(p);
	if (!image || p->keyed != KEY_SET)
		return LOOK_MISS;
	if (p->second && p->memo_flow == flow + 1 && owner_of(p, image, p->memo_rule))
		return p->memo_look;
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
	if (!t || !same_tag(once(t->tag[place % WAYS]), p->tag)) // it has become another's meanwhile
		return LOOK_MISS;
	int look = step(cf, p, s, place);
	if (look == LOOK_HIT || look == LOOK_UNTOUCHED)
		remember(p, flow, look, rule);
	return look;
}
