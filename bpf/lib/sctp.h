// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The state machine of SCTP, docs/design/0003-evaluation.md section 4.
#pragma once

#include "tcp.h"

enum {
	CHUNK_INIT = 1,
	CHUNK_INIT_ACK = 2,
	CHUNK_ABORT = 6,
	CHUNK_SHUTDOWN_COMPLETE = 14,
	CHUNK_BIT_T = 1
};

static __always_inline int chunk_ends(const struct packet *p)
{
	return p->chunk == CHUNK_ABORT || p->chunk == CHUNK_SHUTDOWN_COMPLETE;
}

// set_sctp_tag records the first verification tag that a side uses, unless the packet carries none
// of its own.
static __always_inline void set_sctp_tag(struct side *d, const struct packet *p)
{
	if (d->flags & SIDE_SYN || p->chunk == CHUNK_INIT ||
	    (p->chunk_bits & CHUNK_BIT_T && chunk_ends(p)))
		return;
	d->start = p->seq;
	set_flags(d, SIDE_SYN);
}

// set_sctp_ask records the tag that a side asks the other one to use.
static __always_inline void set_sctp_ask(struct side *d, const struct packet *p)
{
	if (!p->init_tag)
		return;
	d->end = p->init_tag;
	set_flags(d, SIDE_ACKED);
}

// may_use: a packet of side d may carry the tag. It is the one that d has used, or the one that o
// has asked for last. Any tag is valid where neither is known.
static __always_inline int may_use(struct side *d, struct side *o, __u32 tag)
{
	if (d->flags & SIDE_SYN && tag == d->start)
		return 1;
	if (o->flags & SIDE_ACKED)
		return tag == READ_ONCE(o->end);
	return !(d->flags & SIDE_SYN);
}

static __always_inline int step_sctp(struct side *d, struct side *o, const struct packet *p)
{
	if ((d->flags | o->flags) & SIDE_RST)
		return p->chunk == CHUNK_INIT ? RES_RECYCLE : RES_UNTOUCHED;
	int ends = chunk_ends(p);
	if (p->chunk == CHUNK_INIT) {
		if (d->flags & SIDE_SYN && !p->init_tag)
			return RES_UNTOUCHED;
		set_sctp_ask(d, p);
	} else if (chunk_ends(p) && p->chunk_bits & CHUNK_BIT_T) {
		if (!(o->flags & SIDE_SYN) || p->seq != o->start)
			return RES_BAD_TAG;
	} else if (!may_use(d, o, p->seq)) {
		return RES_BAD_TAG;
	} else {
		set_sctp_tag(d, p);
		set_sctp_ask(d, p);
		ends = ends && p->seq == d->start;
	}
	if (ends)
		set_flags(d, SIDE_RST);
	touch(d, p);
	if (d->flags & META_MADE && o->flags & SIDE_SEEN && p->chunk != CHUNK_INIT)
		set_flags(d, SIDE_PROVED);
	return RES_HIT;
}
