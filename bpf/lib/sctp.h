// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The state machine of SCTP, docs/design/0003-evaluation.md section 4.
#pragma once

#include "tcp.h"

enum { CHUNK_INIT = 1, CHUNK_ABORT = 6, CHUNK_SHUTDOWN_COMPLETE = 14, CHUNK_BIT_T = 1 };

static __always_inline int chunk_ends(const struct packet *p)
{
	return p->chunk == CHUNK_ABORT || p->chunk == CHUNK_SHUTDOWN_COMPLETE;
}

// set_sctp_tag records the verification tag that a side uses, unless the packet carries none of its
// own.
static __always_inline void set_sctp_tag(struct side *d, const struct packet *p)
{
	if (p->chunk == CHUNK_INIT || (p->chunk_bits & CHUNK_BIT_T && chunk_ends(p)))
		return;
	d->start = p->seq;
	set_flags(d, SIDE_SYN);
}

static __always_inline int step_sctp(struct side *d, struct side *o, const struct packet *p)
{
	if ((d->flags | o->flags) & SIDE_RST)
		return p->chunk == CHUNK_INIT ? RES_RECYCLE : RES_UNTOUCHED;
	if (p->chunk == CHUNK_INIT) {
		if (d->flags & SIDE_SYN)
			return RES_UNTOUCHED;
	} else if (chunk_ends(p) && p->chunk_bits & CHUNK_BIT_T) {
		if (!(o->flags & SIDE_SYN) || p->seq != o->start)
			return RES_BAD_TAG;
	} else if (d->flags & SIDE_SYN && p->seq != d->start) {
		return RES_BAD_TAG;
	} else {
		set_sctp_tag(d, p);
	}
	if (chunk_ends(p))
		set_flags(d, SIDE_RST);
	touch(d, p);
	if (d->flags & META_MADE && o->flags & SIDE_SEEN && p->chunk != CHUNK_INIT)
		set_flags(d, SIDE_PROVED);
	return RES_HIT;
}
