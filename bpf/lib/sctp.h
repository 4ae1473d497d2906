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

// A side of an association has asked the other one for three tags, 0 for none: for ack in its first
// INIT, for edge in its INIT ACK to the other side's first INIT, and for end last. It uses the tag
// start itself. An INIT may be forged, and its receiver answers it, by an INIT ACK or an ABORT
// (flow/sctp.go). So the first stays known, and such answers do not show which tag is in use.

// set_sctp_tag records the first tag that side d uses. If o has asked for that tag in answer to a
// later INIT than the first, the first was not that of d.
static __always_inline void set_sctp_tag(struct side *d, struct side *o, const struct packet *p)
{
	if (d->flags & SIDE_SYN || p->chunk == CHUNK_INIT || p->chunk == CHUNK_INIT_ACK ||
	    chunk_ends(p))
		return;
	if (d->flags & SIDE_ACKED && p->seq == READ_ONCE(o->end) && p->seq != READ_ONCE(o->edge) &&
	    p->seq != READ_ONCE(o->ack))
		WRITE_ONCE(d->ack, d->end);
	d->start = p->seq;
	set_flags(d, SIDE_SYN);
}

// set_sctp_ask records the tag that an INIT, or an INIT ACK to o, asks for. If o has sent INITs
// with several tags, the tag of the answer to the first stays apart from those of the others.
static __always_inline void set_sctp_ask(struct side *d, struct side *o, const struct packet *p)
{
	__u32 first = READ_ONCE(o->ack);

	if (!p->init_tag)
		return;
	if (p->chunk != CHUNK_INIT && p->seq == first && (!d->edge || first != READ_ONCE(o->end)))
		WRITE_ONCE(d->edge, p->init_tag);
	else
		WRITE_ONCE(d->end, p->init_tag);
	if (p->chunk == CHUNK_INIT && !d->ack)
		WRITE_ONCE(d->ack, p->init_tag);
	set_flags(d, SIDE_ACKED);
}

// uses: the tag is the one that d has used first, or o has asked for it.
static __always_inline int uses(struct side *d, struct side *o, __u32 tag)
{
	if (d->flags & SIDE_SYN && tag == d->start)
		return 1;
	return o->flags & SIDE_ACKED && tag &&
	       (tag == READ_ONCE(o->ack) || tag == READ_ONCE(o->edge) || tag == READ_ONCE(o->end));
}

// may_use: a packet of side d may carry the tag. Any tag is valid where none is known.
static __always_inline int may_use(struct side *d, struct side *o, __u32 tag)
{
	return uses(d, o, tag) || !(d->flags & SIDE_SYN || o->flags & SIDE_ACKED);
}

static __always_inline int other_tag(__u32 asked, __u32 tag)
{
	return asked && asked != tag;
}

// certain: a tag that d may use is that of the association. d has used it first, or has used none,
// and o has asked for no other.
static __always_inline int certain(struct side *d, struct side *o, __u32 tag)
{
	if (d->flags & SIDE_SYN)
		return tag == d->start;
	return !(o->flags & SIDE_ACKED) ||
	       !(other_tag(READ_ONCE(o->ack), tag) || other_tag(READ_ONCE(o->edge), tag) ||
		 other_tag(READ_ONCE(o->end), tag));
}

static __always_inline int step_sctp(struct side *d, struct side *o, const struct packet *p)
{
	if ((d->flags | o->flags) & SIDE_RST)
		return p->chunk == CHUNK_INIT ? RES_RECYCLE : RES_UNTOUCHED;
	int ends = chunk_ends(p);
	if (p->chunk == CHUNK_INIT) {
		if (d->flags & SIDE_SYN && !p->init_tag)
			return RES_UNTOUCHED;
		set_sctp_ask(d, o, p);
	} else if (ends && p->chunk_bits & CHUNK_BIT_T) {
		if (!uses(o, d, p->seq))
			return RES_BAD_TAG;
		ends = certain(o, d, p->seq);
	} else if (!may_use(d, o, p->seq)) {
		return RES_BAD_TAG;
	} else {
		ends = ends && certain(d, o, p->seq);
		set_sctp_tag(d, o, p);
		set_sctp_ask(d, o, p);
	}
	if (ends)
		set_flags(d, SIDE_RST);
	touch(d, p);
	if (d->flags & META_MADE && o->flags & SIDE_SEEN && p->chunk != CHUNK_INIT)
		set_flags(d, SIDE_PROVED);
	return RES_HIT;
}
