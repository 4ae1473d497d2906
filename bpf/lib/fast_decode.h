// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the fast path reads of a packet: IPv4 without options, or IPv6 without extension headers, in
// one piece, with TCP or UDP.
#pragma once

#include "headers.h"

// The fields that the fast path reads. None points into the packet, so the verifier can merge the
// paths of both families and both protocols.
struct fast_packet {
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	// the first words of the transport header; what a UDP datagram has there means nothing
	__u32 ports, seq, ack, bits;
	__u32 len, rest; // of the packet, and of its part behind the IP header
	__u8 version, proto, ttl, tos;
};

// fast_ip4, fast_ip6 and fast_l4 read one header each. The caller has checked that the IP header
// and 20 bytes behind it can be read.
static __always_inline void fast_ip4(struct fast_packet *e, const struct ip4 *h)
{
	e->len = be16(h->len);
	e->rest = e->len - sizeof(*h);
	e->version = 4;
	e->proto = h->proto;
	e->ttl = h->ttl;
	e->tos = h->tos;
	e->src_hi = e->dst_hi = 0;
	e->src_lo = mapped(h->src);
	e->dst_lo = mapped(h->dst);
}

static __always_inline void fast_ip6(struct fast_packet *e, const struct ip6 *h)
{
	e->rest = be16(h->len);
	e->len = e->rest + sizeof(*h);
	e->version = 6;
	e->proto = h->next;
	e->ttl = h->hops;
	e->tos = ip6_tos(h);
	e->src_hi = be64(h->src_hi);
	e->src_lo = be64(h->src_lo);
	e->dst_hi = be64(h->dst_hi);
	e->dst_lo = be64(h->dst_lo);
}

static __always_inline void fast_l4(struct fast_packet *e, const __u8 *t)
{
	e->ports = get32(t);
	e->seq = get32(t + 4);
	e->ack = get32(t + 8);
	e->bits = get32(t + 12);
}

// The length, flags and window of a TCP header.
static __always_inline __u32 fast_tcp_header(const struct fast_packet *e)
{
	return tcp_header(e->bits >> 24);
}

static __always_inline __u8 fast_tcp_flags(const struct fast_packet *e)
{
	return e->bits >> 16;
}

static __always_inline __u32 fast_tcp_window(const struct fast_packet *e)
{
	return e->bits & 0xffff;
}

// whole_segment: the decoder accepts the length of the TCP header.
static __always_inline int whole_segment(const struct fast_packet *e)
{
	__u32 header = fast_tcp_header(e);

	return header >= sizeof(struct tcp) && header <= e->rest;
}

// lengths_fit: the lengths in the headers fit each other, and the packet, which has `most` bytes.
static __always_inline int lengths_fit(const struct fast_packet *e, __u32 most)
{
	__u32 udp = e->seq >> 16;

	// a negative length is a large number
	if (e->len > most || e->rest > 0xffff)
		return 0;
	if (e->proto == PROTO_UDP)
		return e->rest >= sizeof(struct udp) && udp >= sizeof(struct udp) && udp <= e->rest;
	return e->proto == PROTO_TCP && e->rest >= sizeof(struct tcp);
}

// fast_decode reports whether the packet of skb is such a packet, and reads it. l2 is 14 on an
// interface with Ethernet headers and 0 on one without.
static __always_inline int fast_decode(struct fast_packet *e, struct __sk_buff *skb, __u32 l2)
{
	void *ip = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	int four;

	if (l2) {
		const struct ethernet *eth = ip;
		if (ip + sizeof(*eth) > end ||
		    (eth->type != be16(ETH_IP) && eth->type != be16(ETH_IPV6)))
			return 0;
		four = eth->type == be16(ETH_IP);
		ip += sizeof(*eth);
	} else {
		four = ip + 1 > end || ip_version(ip) == 4;
	}
	void *t;
	if (four) {
		const struct ip4 *h = ip;
		t = ip + sizeof(*h);
		if (t + 20 > end || !plain4(h))
			return 0;
		fast_ip4(e, h);
	} else {
		const struct ip6 *h = ip;
		t = ip + sizeof(*h);
		if (t + 20 > end || ip_version(h) != 6)
			return 0;
		fast_ip6(e, h);
		if (is_mapped(e->src_hi, e->src_lo) || is_mapped(e->dst_hi, e->dst_lo))
			return 0;
	}
	fast_l4(e, t);
	return lengths_fit(e, skb->len - (l2 ? sizeof(struct ethernet) : 0));
}
