// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Packets that are held for some milliseconds when our programs take over the hooks of another
// engine. The table of the other engine has flows that are not copied yet, and our rules refuse
// their packets. These packets are not dropped but held, until the agent has copied all flows and
// gives them to their hooks again (weir_release). Only then are they decided, so one engine decides
// about each packet. The counters of a rule and of a pod that refused a held packet count it twice.
#pragma once

#include "event.h"

// may_hold: a state that is not here yet might let the packet pass. A SYN needs no state. The
// checksum of SCTP may be left to the NIC, and the agent does not complete it.
static __always_inline int may_hold(const struct packet *p, const struct verdict *v)
{
	if (p->kind != PARSED_IP || p->reason || p->l3 != 14 || p->proto == PROTO_SCTP ||
	    (p->proto == PROTO_TCP && bare_syn(p->tcp_flags)))
		return 0;
	return v->reason == REASON_RULE || v->reason == REASON_TCP_FLAGS ||
	       v->reason == REASON_FRAG_UNKNOWN;
}

// hold keeps a packet that was refused. It returns 0 if there is no space or the packet is larger
// than SNAP: its sender will send it again.
__noinline int hold(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	__u32 n = skb->len;

	if (!may_hold(p, &c->verdict) || skb->vlan_present || skb->gso_size || n == 0 || n > SNAP)
		return 0;
	struct held_frame *h = bpf_ringbuf_reserve(&held_packets, sizeof(*h), 0);
	if (!h)
		return 0;
	h->ifindex = skb->ifindex;
	h->ingress_ifindex = skb->ingress_ifindex;
	h->mark = skb->mark;
	h->priority = skb->priority;
	h->pkt_type = skb->pkt_type;
	h->dir = p->second_evaluation ? DIR_IN : p->dir; // where the frame still is
	h->size = n;
	if (bpf_skb_load_bytes(skb, 0, h->data, sized(n, SNAP)) < 0) {
		bpf_ringbuf_discard(h, 0);
		return 0;
	}
	bpf_ringbuf_submit(h, 0);
	return 1;
}
