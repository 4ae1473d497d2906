// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The answers that verdicts ask for: the packet itself becomes its answer and goes back to where it
// came from.
//
// At egress it goes up the stack, which asks the IPsec policies of the host. At ingress it leaves
// past them. So there is no answer if a policy may want it encrypted: it would quote in the clear
// what may have come in encrypted.
//
// The answer has the mark config.local_mark, by which the programs recognise it and let it pass.
// Sources: RFC 9293 3.10.7.1 for resets, RFC 1812 4.3.2 and RFC 4443 2.4 for errors. build.Reset
// and build.Unreachable make the same packets in Go.
#pragma once

#include "evaluate.h"
#include "ipsec.h"
#include "prototypes.h"

enum { QUOTE4 = 576 - 28, QUOTE6 = 1280 - 48, CHUNK = 64, HOST = 0 };
enum { ANSWERS_PER_SECOND = 1000, ANSWER_BURST = 50 }; // of one CPU

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// sum adds up words of memory as they lie there.
static __always_inline __u64 sum(const __u32 *words, int n)
{
	__u64 s = 0;

#pragma unroll
	for (int i = 0; i < n; i++)
		s += words[i];
	return s;
}

// pseudo_sum is the sum of the pseudo-header of an answer to the packet.
static __always_inline __u64 pseudo_sum(const struct packet *p, __u8 proto, __u32 len)
{
	__u64 s = (__u64)be32(len) + be32((__u32)proto);

	if (p->version == 4)
		return s + be32((__u32)p->src_lo) + be32((__u32)p->dst_lo);
	s += be32((__u32)p->src_lo);
	s += be32((__u32)(p->src_lo >> 32));
	s += be32((__u32)p->src_hi);
	s += be32((__u32)(p->src_hi >> 32));
	s += be32((__u32)p->dst_lo);
	s += be32((__u32)(p->dst_lo >> 32));
	s += be32((__u32)p->dst_hi);
	return s + be32((__u32)(p->dst_hi >> 32));
}

// store_ip writes the IP header of the answer at p->l3: from the packet's destination to its
// source, with n bytes behind the header.
static __always_inline long store_ip(struct __sk_buff *skb, const struct packet *p, __u8 proto,
				     __u32 n)
{
	if (p->version == 4) {
		struct ip4 h = {.version_ihl = 0x45, .ttl = 64, .proto = proto};
		h.tos = proto == PROTO_ICMP ? 0xc0 : 0;
		h.frag = proto == PROTO_TCP ? be16(0x4000) : 0;
		h.len = be16(20 + n);
		h.src = be32((__u32)p->dst_lo);
		h.dst = be32((__u32)p->src_lo);
		h.check = fold(sum((__u32 *)&h, 5));
		return bpf_skb_store_bytes(skb, p->l3, &h, sizeof(h), 0);
	}
	struct ip6 h = {.version = be32(0x60000000), .next = proto, .hops = 64};
	h.len = be16(n);
	h.src_hi = be64(p->dst_hi);
	h.src_lo = be64(p->dst_lo);
	h.dst_hi = be64(p->src_hi);
	h.dst_lo = be64(p->src_lo);
	return bpf_skb_store_bytes(skb, p->l3, &h, sizeof(h), 0);
}

// swap_macs addresses the frame to where it came from.
static __always_inline long swap_macs(struct __sk_buff *skb)
{
	struct ethernet e;
	__u8 dst[6];

	if (bpf_skb_load_bytes(skb, 0, &e, sizeof(e)) < 0)
		return -1;
	__builtin_memcpy(dst, e.dst, 6);
	__builtin_memcpy(e.dst, e.src, 6);
	__builtin_memcpy(e.src, dst, 6);
	return bpf_skb_store_bytes(skb, 0, &e, sizeof(e), 0);
}

static __always_inline int make_reset(struct __sk_buff *skb, const struct packet *p)
{
	struct tcp t = {.offset = 5 << 4, .flags = TH_RST};
	__u32 header = p->version == 4 ? 20 : 40;

	if (p->frag & FRAG_FIRST)
		return -1;
	t.src = be16(p->ports & 0xffff);
	t.dst = be16(p->ports >> 16);
	if (p->tcp_flags & TH_ACK) {
		t.seq = be32(p->ack);
	} else {
		t.flags |= TH_ACK;
		t.ack = be32(p->seq + segment_length(p));
	}
	t.check = fold(sum((__u32 *)&t, 5) + pseudo_sum(p, PROTO_TCP, sizeof(t)));
	if (bpf_skb_change_tail(skb, p->l3 + header + sizeof(t), 0) < 0)
		return -1;
	if (store_ip(skb, p, PROTO_TCP, sizeof(t)) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, p->l3 + header, &t, sizeof(t), 0);
}

// quote_sum adds up the first n bytes of the packet, which an error quotes.
static __always_inline __u64 quote_sum(struct __sk_buff *skb, const struct packet *p,
				       struct scratch *scratch, __u32 n)
{
	WRITE_ONCE(scratch->at, 0);
	WRITE_ONCE(scratch->end, n);
	scratch->checksum = 0;
	for (int i = 0; i < (QUOTE6 + CHUNK - 1) / CHUNK; i++) {
		__u32 at = READ_ONCE(scratch->at), left = READ_ONCE(scratch->end) - at;
		if (!left || left > QUOTE6)
			break;
		if (left < CHUNK) {
			__builtin_memset(scratch->buf, 0, CHUNK);
			opaque(left);
			if (left == 0 || left >= CHUNK ||
			    bpf_skb_load_bytes(skb, p->l3 + at, scratch->buf, sized(left, CHUNK)) <
				    0)
				break;
		} else {
			if (bpf_skb_load_bytes(skb, p->l3 + at, scratch->buf, CHUNK) < 0)
				break;
			left = CHUNK;
		}
		scratch->checksum += sum((__u32 *)scratch->buf, CHUNK / 4);
		WRITE_ONCE(scratch->at, at + left);
	}
	return scratch->checksum;
}

static __always_inline int make_error(struct __sk_buff *skb, const struct packet *p,
				      const struct verdict *v, const struct forward *fwd,
				      struct scratch *scratch)
{
	int four = p->version == 4;
	__u32 most = four ? QUOTE4 : QUOTE6, n = p->len < most ? p->len : most,
	      header = four ? 20 : 40;
	struct icmp e = {.type = four ? 3 : 1, .code = v->code};

	if (unlikely(fwd->hop_error == HOP_TOO_BIG)) { // RFC 1191 4, RFC 4443 3.2
		e.type = four ? 3 : 2;
		e.rest = be32(fwd->hop_mtu);
	} else if (unlikely(fwd->hop_error == HOP_EXPIRED)) {
		e.type = four ? 11 : 3;
	}
	if (bpf_skb_change_tail(skb, p->l3 + n, 0) < 0)
		return -1;
	__u64 s = quote_sum(skb, p, scratch, n) + sum((__u32 *)&e, 2);
	if (!four)
		s += pseudo_sum(p, PROTO_ICMPV6, sizeof(e) + n);
	e.check = fold(s);
	if (bpf_skb_adjust_room(skb, header + sizeof(e), BPF_ADJ_ROOM_MAC, 0) < 0)
		return -1;
	if (store_ip(skb, p, four ? PROTO_ICMP : PROTO_ICMPV6, sizeof(e) + n) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, p->l3 + header, &e, sizeof(e), 0);
}

// take_answer takes an answer from the bucket that will be full at *full.
static __always_inline int take_answer(__s64 *full, __s64 now)
{
	__s64 cost = 1000000000 / ANSWERS_PER_SECOND;

	if (*full < now - ANSWER_BURST * cost)
		*full = now - ANSWER_BURST * cost;
	if (*full > now)
		return 0;
	*full += cost;
	return 1;
}

// may_answer limits the rate of errors, except those that report an MTU: without one a connection
// hangs. Linux does not limit them either (icmpv4_mask_allow, icmpv6_mask_allow), and no resets. So
// resets have a rate, of their own, only where IPsec policies are asked about each (`asks`).
static __always_inline int may_answer(struct cpu *c, int asks)
{
	__u8 answer = c->verdict.answer;

	if (answer == ANSWER_COOKIE || c->fwd.hop_error == HOP_TOO_BIG)
		return 1;
	if (answer == ANSWER_RESET)
		return !asks || take_answer(&c->reset_time, c->packet.now);
	return take_answer(&c->answer_time, c->packet.now);
}

// make_answer turns the packet into the answer, but for its Ethernet header.
static __always_inline int make_answer(struct __sk_buff *skb, struct cpu *c)
{
	const struct packet *p = &c->packet;
	const struct verdict *v = &c->verdict;
	struct scratch *scratch = &c->scratch;

	switch (v->answer) {
	case ANSWER_RESET:
		return make_reset(skb, p);
	case ANSWER_COOKIE:
		return make_cookie(skb, c);
	}
	return make_error(skb, p, v, &c->fwd, scratch);
}

// reply turns the packet into the answer that the verdict asks for and returns what the program has
// to return.
__noinline int reply(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct forwarding *f = forwarding_settings();
	if (!c || !cf || !f)
		return TC_ACT_SHOT;
	const struct packet *p = &c->packet;
	// Frames with VLAN tags in the data, and frames that were not unicast to this host, get no
	// answer.
	if (p->l3 > 14 || (p->dir == DIR_IN && skb->pkt_type != HOST))
		return TC_ACT_SHOT;
	// A SYN that a policy wants answered encrypted gets no cookie: create_state.
	int asks = p->dir == DIR_IN && unlikely(f->policies) && c->verdict.answer != ANSWER_COOKIE;
	// The rate comes first: a flood of refused packets asks the policies no more often than
	// answers may be sent. So an answer that a policy prevents counts, too. That takes nothing
	// from others that a packet without a policy could not take.
	if (!may_answer(c, asks) || (asks && protected(c, POLICY_OUT, 1, 0)) ||
	    make_answer(skb, c) < 0) {
		c->unanswered++;
		return TC_ACT_SHOT;
	}
	if (p->l3 && swap_macs(skb) < 0)
		return TC_ACT_SHOT;
	skb->mark = cf->local_mark;
	return bpf_redirect(skb->ifindex, p->dir == DIR_IN ? 0 : BPF_F_INGRESS);
}
