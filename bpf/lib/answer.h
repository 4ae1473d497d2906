// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Which answer a verdict asks for, docs/design/0003-evaluation.md section 7.
#pragma once

#include "decode.h"

// single: the address may be that of one host. answerable: RFC 1122 3.2.2, RFC 4443 2.4.
static __always_inline int single(__u64 hi, __u64 lo, __u8 version)
{
	__u32 a = lo;

	if (version == 4)
		return a != 0 && a >> 28 != 14 && a != 0xffffffff;
	return hi >> 56 != 0xff && (hi | lo) != 0;
}

static __always_inline int answerable(const struct packet *p)
{
	if (p->frag & FRAG_LATER || (is_icmp(p) && is_icmp_error(p->version, p->icmp_type)))
		return 0;
	if (p->proto == PROTO_TCP && p->tcp_flags & TH_RST)
		return 0;
	return single(p->src_hi, p->src_lo, p->version) && single(p->dst_hi, p->dst_lo, p->version);
}

static __always_inline void set_answer(const struct packet *p, struct verdict *v, struct code *r)
{
	int four = p->version == 4;

	if (r->action == ACT_DENY || !answerable(p))
		return;
	if (r->action == ACT_RESET) {
		if (p->proto == PROTO_TCP)
			v->answer = ANSWER_RESET;
	} else if (r->action == ACT_REJECT) {
		v->answer = four ? ANSWER_UNREACH : ANSWER_UNREACH6;
		v->code = four ? 1 : 3;
	} else if (r->action == ACT_UNREACH && four) {
		v->answer = ANSWER_UNREACH;
		v->code = r->arg;
	} else if (r->action == ACT_UNREACH6 && !four) {
		v->answer = ANSWER_UNREACH6;
		v->code = r->arg;
	}
}
