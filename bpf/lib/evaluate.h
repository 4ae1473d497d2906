// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Evaluation of one packet, docs/design/0003-evaluation.md section 2. The caller has set dir,
// recv, xmit, now, random and the tags.
#pragma once

#include "dhcp.h"
#include "extra.h"
#include "frag.h"

__always_inline void load_iface(__u32 ifindex, struct iface *to)
{
	struct iface *f = ifindex ? bpf_map_lookup_elem(&ifaces, &ifindex) : NULL;

	if (f)
		*to = *f;
	else
		__builtin_memset(to, 0, sizeof(*to));
}

__always_inline void reset_walk(struct pkt *p)
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
	p->pure = 0;
	for (int i = 0; i < 4; i++) {
		p->looked[i] = 0;
		p->have[i] = 0;
	}
}

enum { LOOKUP_WALK, LOOKUP_CONTINUE, LOOKUP_DONE };

// by_first_lookup decides most packets of the slow path: the first rule looks states up, there is
// one, and its rule decides (LOOKUP_DONE). Otherwise the walk begins (LOOKUP_WALK) or continues
// where p stands (LOOKUP_CONTINUE).
__always_inline int by_first_lookup(struct pkt *p, void *image, struct header *h)
{
	__u32 flow = h->fast_flow - 1;
	int look = was_missed(p, flow) ? LOOK_MISS : look_up(flow);
	struct code *owner = look == LOOK_MISS ? NULL : code_in(image, p->slot);

	if (look == LOOK_HIT && owner && owner->action == ACT_ALLOW && !owner->tag &&
	    !(owner->flags & CODE_LOG)) {
		p->v.state = USE_HIT;
		count_rule(p, owner->id);
		decide(p, owner, 1, REASON_RULE);
		p->settled = 1;
		return LOOKUP_DONE;
	}
	if (look >= LOOK_DROP && owner) {
		decide(p, owner, 0, look - LOOK_DROP);
		return LOOKUP_DONE;
	}
	reset_walk(p);
	record_lookup(p, flow);
	p->lookups = 1;
	if (look == LOOK_MISS) {
		p->pc = h->after;
		return LOOKUP_WALK;
	}
	p->have[flow >> 6 & 3] |= 1ULL << (flow & 63);
	p->v.state = look == LOOK_HIT ? USE_HIT : USE_UNTOUCHED;
	p->mode = MODE_ACT;
	return LOOKUP_CONTINUE;
}

// begin_rules starts the walk at the first rule that matches, if the verdict cache has it.
__always_inline void begin_rules(struct pkt *p, struct header *h)
{
	__u32 found = verdict_lookup(h->reads);

	if (!found)
		return;
	p->slot = found - 1;
	p->pc = found;
	p->mode = MODE_MATCHED;
}

// evaluate_rules reports whether the rules have to be walked.
__always_inline int evaluate_rules(struct __sk_buff *skb, struct config *cf, struct pkt *p,
				   void *image, struct header *h)
{
	if (h->need & NEED_NAMES) {
		load_iface(p->recv, &p->recv_if);
		load_iface(p->xmit, &p->xmit_if);
	}
	p->keyed = KEY_NONE;
	if (h->need & NEED_STATES) {
		if (p->proto == PROTO_SCTP || (p->proto == PROTO_TCP && p->tcp_flags & TH_SYN))
			read_extras(skb);
		make_key(skb, p);
		if (h->fast_flow && !p->later) {
			int r = by_first_lookup(p, image, h);
			if (r == LOOKUP_WALK)
				begin_rules(p, h);
			return r != LOOKUP_DONE;
		}
	}
	reset_walk(p);
	begin_rules(p, h);
	return 1;
}

// decided_before sets a verdict without a rule.
__always_inline void decided_before(struct pkt *p, int pass, __u8 reason)
{
	p->v.pass = pass;
	p->v.reason = reason;
}

// read_frame parses the frame of skb. l2 is 14 on an interface with Ethernet headers, L2_INFINIBAND
// on one of InfiniBand, and 0 on one without headers.
__noinline int read_frame(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	if (l2 == L2_INFINIBAND)
		c->p.kind = parse_slow(skb, L2_INFINIBAND);
	else
		c->p.kind = parse(skb, &c->p, l2 ? 14 : 0);
	return 0;
}

// by_rules walks the rules.
__noinline int by_rules(__u32 unused)
{
	walk();
	struct cpu *c = this_cpu();
	if (c && unlikely(c->p.frag & FRAG_FIRST))
		record_fragment(0);
	return unused;
}

// before_rules decides about the packet of skb, unless the rules have to be walked: then it
// returns 1.
__noinline int before_rules(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	struct pkt *p = &c->p;

	__builtin_memset(&p->v, 0, sizeof(p->v));
	p->proved = 0;
	p->v.reason = REASON_LOOP;
	p->current = cf->current & CURRENT_SLOT;
	if (p->kind != PARSED_IP) {
		p->len = 0;
		decided_before(p, 1, REASON_NOT_IP);
		return 0;
	}
	if (p->reason) {
		decided_before(p, 0, REASON_DECODE + p->reason);
		return 0;
	}
	// Neighbour discovery is essential on one link only: it is not forwarded, where the hop
	// limit is one less.
	if (p->proto == PROTO_ICMPV6 && !cf->no_essential && !p->second && essential(p)) {
		decided_before(p, 1, REASON_ESSENTIAL);
		return 0;
	}
	if (p->proto == PROTO_UDP && dhcp_ports(p->ports) && !cf->no_dhcp && is_dhcp(0)) {
		decided_before(p, 1, REASON_ESSENTIAL);
		return 0;
	}
	p->later = (p->frag & FRAG_LATER) != 0;
	if (unlikely(p->later) && follow_fragment(0))
		return 0;
	void *image = image_of(p);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	if (!h) { // no Program was ever loaded
		decided_before(p, 1, REASON_RULE);
		return 0;
	}
	if (evaluate_rules(skb, cf, p, image, h))
		return 1;
	if (unlikely(p->frag & FRAG_FIRST))
		record_fragment(0);
	return 0;
}

// evaluate decides about the packet of skb, which has been read. It calls its two parts one after
// the other: nested, their stacks would be too deep.
__always_inline void evaluate(struct __sk_buff *skb)
{
	if (before_rules(skb))
		by_rules(0);
	struct cpu *c = this_cpu();
	if (c)
		keep_proved(&c->p);
}

__always_inline void report_drop(struct pkt *p, struct config *cf)
{
	__u8 r = p->v.reason;

	if (r == REASON_COOKIE) // not dropped but answered
		return;

	__u32 kind = (r >= REASON_LIMIT && r <= REASON_NO_KEY) || r == REASON_HALF_OPEN_SOURCE ||
				     r == REASON_TRACKS_FULL ?
			     EVENT_REFUSE :
			     EVENT_DROP;

	if (listened(cf, kind))
		event_packet(kind);
}

__always_inline void count_verdict(struct cpu *c)
{
	struct pkt *p = &c->p;
	struct count *n = &c->decided[below((p->dir * 2 + p->v.pass) * NUM_REASONS + p->v.reason,
					    4 * NUM_REASONS)];

	n->packets++;
	n->bytes += p->len;
}

// finish counts the verdict and reports a drop.
__always_inline void finish(struct cpu *c, struct config *cf)
{
	struct pkt *p = &c->p;

	count_verdict(c);
	if (unlikely(!p->v.pass))
		report_drop(p, cf);
	if (unlikely(p->v.state == USE_NEW) && listened(cf, EVENT_START))
		event_packet(EVENT_START);
}
