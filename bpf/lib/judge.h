// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The judgement of one packet, docs/design/0003-judgement.md section 2. The caller has set dir, recv, xmit, now, random and the tags.
#pragma once

#include "extra.h"
#include "frag.h"

inline_always void load_iface(__u32 ifindex, struct iface *to)
{
	struct iface *f = ifindex ? bpf_map_lookup_elem(&ifaces, &ifindex) : NULL;

	if (f)
		*to = *f;
	else
		__builtin_memset(to, 0, sizeof(*to));
}

inline_always void begin_walk(struct pkt *p)
{
	p->pc = 0;
	p->word = ~0U;
	p->all = 0;
	p->match = 0;
	p->classified = 0;
	p->entry = 0;
	p->clause = 0;
	p->mode = MODE_NEXT;
	p->depth = 0;
	p->jumps = 0;
	p->lookups = 0;
	p->any_asked = 0;
	for (int i = 0; i < 4; i++) {
		p->looked[i] = 0;
		p->have[i] = 0;
	}
}

// established is the short way for most packets: the first rule looks states up, there is one, and its rule allows. It returns 0 if the walk
// has to be taken, from where p stands.
inline_always int established(struct pkt *p, struct header *h)
{
	if (h->first)
		return 0;
	struct code *r = code_of(p, h, 0);
	if (!r || r->flow == ANY_FLOW || r->flags & CODE_PROB)
		return 0;
	p->slot = 0;
	if (look_first(p, h, r) == STEP_DONE)
		return 1;
	if (p->mode != MODE_ACT)
		return 0;
	r = code_of(p, h, p->slot);
	return r ? act(p, h, r) == STEP_DONE : 1;
}

inline_always void judge_rules(struct __sk_buff *skb, struct pkt *p, struct header *h)
{
	begin_walk(p);
	if (h->need & NEED_NAMES) {
		load_iface(p->recv, &p->recv_if);
		load_iface(p->xmit, &p->xmit_if);
	}
	p->keyed = KEY_NONE;
	if (h->need & NEED_STATES) {
		if (p->proto == PROTO_SCTP || (p->proto == PROTO_TCP && p->tcp_flags & TH_SYN))
			read_extras(skb);
		make_key(skb, p);
		if (!p->later && established(p, h))
			return;
	}
	walk_rules(0);
}

// decided_before notes a verdict without a rule.
inline_always void decided_before(struct pkt *p, int pass, __u8 reason)
{
	p->v.pass = pass;
	p->v.reason = reason;
}

inline_always void judge(struct __sk_buff *skb, struct cpu *c, struct config *cf, __u32 l2)
{
	struct pkt *p = &c->p;
	int kind = parse(skb, p, l2);

	p->v.pass = 0;
	p->v.reason = REASON_LOOP;
	p->v.answer = ANSWER_NONE;
	p->v.code = 0;
	p->v.state = USE_NONE;
	p->v.number = 0;
	p->v.slot = 0;
	p->v.id = 0;
	p->current = cf->current;
	if (kind != PARSED_IP) {
		decided_before(p, 1, REASON_NOT_IP);
		return;
	}
	if (p->reason) {
		decided_before(p, 0, REASON_DECODE + p->reason);
		return;
	}
	if (p->proto == PROTO_ICMPV6 && !cf->no_essential && essential(p)) {
		decided_before(p, 1, REASON_ESSENTIAL);
		return;
	}
	p->later = (p->frag & FRAG_LATER) != 0;
	if (unlikely(p->later) && follow_fragment(0))
		return;
	struct header *h = header_of(p);
	if (!h) { // no Program was ever loaded
		decided_before(p, 1, REASON_RULE);
		return;
	}
	judge_rules(skb, p, h);
	if (unlikely(p->frag & FRAG_FIRST))
		note_fragment(0);
}

inline_always void tell_drop(struct pkt *p, struct config *cf)
{
	__u8 r = p->v.reason;

	__u32 kind = r >= REASON_LIMIT && r <= REASON_NO_KEY ? EVENT_REFUSE : EVENT_DROP;

	if (listened(cf, kind))
		event_packet(kind);
}

// finish counts the verdict and tells of a drop.
inline_always void finish(struct cpu *c, struct config *cf)
{
	struct pkt *p = &c->p;

	c->reasons[p->v.reason & (NUM_REASONS - 1)]++;
	if (unlikely(!p->v.pass))
		tell_drop(p, cf);
	if (unlikely(p->v.state == USE_NEW) && listened(cf, EVENT_START))
		event_packet(EVENT_START);
}
