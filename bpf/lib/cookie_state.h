// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The state that a redeemed SYN cookie makes, docs/design/0003-evaluation.md section 10.
#pragma once

#include "tcp.h"

enum { COOKIE_WINDOW = 64240, COOKIE_SCALE = 7, TS_NO_SCALE = 15 };

// What the options of a segment offer.
enum seen_option { SEEN_TS = 1, SEEN_SACK = 2 };

// establish completes the new state at a place, which its acknowledgement has filled as a SYN, by
// what the handshake has shown. The entry is not published yet: one without the other side would
// refuse the client's next segment, which may be on another CPU. So plain stores are enough.
__noinline int establish(struct cpu *c, __u32 place)
{
	struct set *s = set_at(place / WAYS);
	if (!c || !s)
		return 0;
	const struct packet *p = &c->packet;
	const struct cookie *cookie = &c->cookie;
	struct side *low = low_side(s, place), *high = high_side(s, place);
	struct side *d = c->look.from ? high : low, *o = c->look.from ? low : high;
	__u32 scale = cookie->ts_echo & 15;
	__u32 scaled = cookie->offered & SEEN_TS && scale != TS_NO_SCALE ? SIDE_SCALED : 0;
	__u32 win = (__u32)p->window << (scaled ? scale : 0), first = p->seq + 1;
	__u32 fin = cookie->redeemed_flags & TH_FIN ? SIDE_FIN : 0;

	o->start = p->ack - 1;
	o->end = p->ack;
	o->ack = first;
	o->edge = first + COOKIE_WINDOW;
	o->win = COOKIE_WINDOW;
	o->flags |= SIDE_SEEN | SIDE_SYN | SIDE_ACKED | scaled | (scaled ? COOKIE_SCALE << 8 : 0);
	d->end += fin ? 1 : 0;
	d->ack = p->ack;
	d->edge = p->ack + win;
	d->win = win;
	d->flags &= ~(SIDE_SCALED | SIDE_SCALE);
	d->flags |=
		SIDE_ACKED | SIDE_PROVED | META_REDEEMED | fin | scaled | (scaled ? scale << 8 : 0);
	return 1;
}
