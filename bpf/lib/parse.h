// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Decoding a frame: a fast path for plain packets in one piece, and a slow path for everything
// else. Section numbers are those of docs/design/0002-decoder.md.
#pragma once

#include "decode.h"

static __always_inline int is_extension(__u8 proto)
{
	return proto == PROTO_HOPBYHOP || proto == PROTO_ROUTING || proto == PROTO_FRAGMENT ||
	       proto == PROTO_AH || proto == PROTO_DESTINATION;
}

// load_transport reads up to 20 bytes at p->l4 and ends the decode.
static __always_inline int load_transport(struct __sk_buff *skb, struct packet *p,
					  struct scratch *scratch)
{
	__u32 n = p->len - p->l4, want = n < 20 ? n : 20;

	scratch->left = n;
	opaque(want);
	if (want > 0 && want <= 20 &&
	    bpf_skb_load_bytes(skb, p->l3 + p->l4, scratch->buf, sized(want, 64)) < 0)
		return refuse(p, DECODE_SHORT);
	return transport(p, scratch->buf, scratch->left);
}

// options4 records the IPv4 options, section 4.5.
static __always_inline __u8 options4(struct __sk_buff *skb, struct packet *p,
				     struct scratch *scratch)
{
	__u32 n = p->l4 - 20;

	opaque(n);
	if (n == 0 || n > 40)
		return 0;
	if (bpf_skb_load_bytes(skb, p->l3 + 20, scratch->buf, sized(n, 64)) < 0)
		return DECODE_SHORT;
	scratch->at = 0;
	scratch->end = p->l4 - 20;
	for (int i = 0; i < MAX_OPTIONS; i++) {
		struct option o = next_option(scratch);
		if (o.kind == OPTION_END)
			return 0;
		if (o.kind == OPTION_PAD)
			continue;
		if (o.kind == OPTION_BAD)
			return DECODE_IP_OPTION;
		p->ip_options |= o.kind == 137 ? OPT_SSRR :
				 o.kind == 131 ? OPT_LSRR :
				 o.kind == 7   ? OPT_RR :
				 o.kind == 68  ? OPT_TS :
				 o.kind == 148 ? OPT_ROUTER_ALERT :
						 0;
	}
	return 0;
}

// hop_options records the hop-by-hop options in bytes scratch->at to scratch->end of the IP packet,
// section 5.6.5. It loads them at once: a load for each option would let a sender choose the cost.
//
// The verifier of Linux 6.1 would follow the loop for each extension header, were this inlined.
__noinline int hop_options(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return DECODE_EXT_OPTION;
	struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;
	__u8 *options = scratch->hop_options;
	__u32 n = scratch->end - scratch->at;

	opaque(n);
	if (n == 0 || n >= HOP_OPTIONS_SIZE ||
	    bpf_skb_load_bytes(skb, p->l3 + scratch->at, options, sized(n, HOP_OPTIONS_SIZE)) < 0)
		return DECODE_EXT_OPTION;
	WRITE_ONCE(scratch->at, 0);
	WRITE_ONCE(scratch->end, n);
	for (int i = 0; i < MAX_HOP_OPTIONS; i++) {
		__u32 at = READ_ONCE(scratch->at), left = READ_ONCE(scratch->end) - at;
		if (!left || left > HOP_OPTIONS_SIZE)
			return 0;
		__u8 kind = options[below(at, HOP_OPTIONS_SIZE)];
		if (kind == 0) {
			WRITE_ONCE(scratch->at, at + 1);
			continue;
		}
		if (left < 2)
			return DECODE_EXT_OPTION;
		__u32 len = (__u32)options[below(at + 1, HOP_OPTIONS_SIZE)] + 2;
		if (len > left)
			return DECODE_EXT_OPTION;
		if (kind == 5)
			p->ip_options |= OPT_ROUTER_ALERT;
		if (kind == 0xc2)
			return DECODE_JUMBO;
		WRITE_ONCE(scratch->at, at + len);
	}
	return scratch->at < scratch->end ? DECODE_EXT_OPTION : 0;
}

// extension_size returns the length of the extension header whose first bytes are in scratch->buf,
// 0 when it is invalid or the packet ends inside it.
static __always_inline __u32 extension_size(__u8 proto, const __u8 *b, __u32 left)
{
	__u32 size = 8;

	if (proto == PROTO_AH) {
		size = ((__u32)b[1] + 2) * 4;
		if (size < 12)
			return 0;
	} else if (proto != PROTO_FRAGMENT) {
		size = ((__u32)b[1] + 1) * 8;
	}
	return size > left ? 0 : size;
}

enum { JUMBO_HEADER = 8 };

// is_jumbo_gso: the first extension header of an IPv6 packet holds the length of a GSO packet above
// 64 KiB (BIG TCP, struct hop_jumbo_hdr). Its bytes are in scratch->buf. The kernel removes it when
// it makes segments, so rules do not see it.
static __always_inline int is_jumbo_gso(struct __sk_buff *skb, const struct packet *p,
					struct scratch *scratch)
{
	return skb->gso_size && p->l4 == 40 && p->len > 40 + 65535 && !scratch->buf[1] &&
	       scratch->buf[2] == 0xc2 && scratch->buf[3] == 4 &&
	       get32(scratch->buf + 4) == p->len - 40;
}

// fragment_header reads the fragment header in buf, behind which the packet has left - 8 bytes, and
// reports whether the decode ends here.
static __always_inline int fragment_header(struct packet *p, const __u8 *buf, __u32 left)
{
	__u32 word = get16(buf + 2), front = p->l4 - 40;
	p->ext_hdrs |= EXT_FRAGMENT;
	p->ip_id = get32(buf + 4);
	p->proto = buf[0];
	p->l4 += 8;
	return (word & 0xfff8 || word & 1) && fragment(p, word & 0xfff8, word & 1, left - 8, front);
}

// extensions walks the IPv6 extension headers, section 5.6, and reports whether the decode ends
// here.
static __always_inline int extensions(struct __sk_buff *skb, struct cpu *c, struct packet *p,
				      struct scratch *scratch)
{
	for (int i = 0; i <= MAX_EXT; i++) {
		__u8 proto = READ_ONCE(p->proto);
		__u32 left = READ_ONCE(p->len) - READ_ONCE(p->l4);
		if (!is_extension(proto))
			return 0;
		if (i == MAX_EXT) {
			stop(p, DECODE_EXT_COUNT);
			return 1;
		}
		if ((proto == PROTO_HOPBYHOP && i > 0) ||
		    (proto == PROTO_FRAGMENT && p->ext_hdrs & EXT_FRAGMENT)) {
			stop(p, DECODE_EXT_ORDER);
			return 1;
		}
		if (left < 8 || bpf_skb_load_bytes(skb, p->l3 + p->l4, scratch->buf, 8) < 0) {
			stop_short(p, DECODE_EXT_SHORT);
			return 1;
		}
		__u32 size = extension_size(proto, scratch->buf, left);
		if (!size) {
			stop_short(p, DECODE_EXT_SHORT);
			return 1;
		}
		__u8 next = scratch->buf[0];
		if (proto == PROTO_HOPBYHOP && is_jumbo_gso(skb, p, scratch)) {
			p->jumbo = JUMBO_HEADER;
			p->proto = next;
			p->l4 += JUMBO_HEADER;
			continue;
		}
		if (proto == PROTO_FRAGMENT) {
			if (fragment_header(p, scratch->buf, left))
				return 1;
			continue;
		}
		p->ext_hdrs |= proto == PROTO_HOPBYHOP	  ? EXT_HOPBYHOP :
			       proto == PROTO_AH	  ? EXT_AH :
			       proto == PROTO_DESTINATION ? EXT_DESTINATION :
			       scratch->buf[2]		  ? EXT_ROUTING :
							    EXT_ROUTING | EXT_ROUTING0;
		if (proto == PROTO_HOPBYHOP) {
			scratch->at = p->l4 + 2;
			scratch->end = p->l4 + size;
			scratch->left = size;
			__u8 r = hop_options(skb, c);
			if (r) {
				stop(p, r);
				return 1;
			}
			size = scratch->left;
		}
		p->proto = next;
		p->l4 += size;
	}
	return 0;
}

static __always_inline int slow4(struct __sk_buff *skb, struct packet *p, struct scratch *scratch)
{
	const struct ip4 *h = (const struct ip4 *)scratch->buf;
	__u32 total = be16(h->len);
	if (!total && skb->gso_size) // a GSO packet above 64 KiB has 0
		total = p->buffer;
	__u32 word = be16(h->frag);
	__u8 r = read_ip4(p, h, total);
	if (r)
		return refuse(p, r);
	r = options4(skb, p, scratch);
	if (r)
		return stop(p, r);
	if (word & (IP4_MF | IP4_OFFSET) &&
	    fragment(p, (word & IP4_OFFSET) * 8, word & IP4_MF, p->len - p->l4, p->l4))
		return PARSED_IP;
	return load_transport(skb, p, scratch);
}

static __always_inline int slow6(struct __sk_buff *skb, struct cpu *c, struct packet *p,
				 struct scratch *scratch)
{
	const struct ip6 *h = (const struct ip6 *)scratch->buf;
	if (p->buffer < sizeof(*h) || bpf_skb_load_bytes(skb, p->l3, scratch->buf, sizeof(*h)) < 0)
		return refuse(p, DECODE_SHORT);
	__u32 payload = be16(h->len), total = sizeof(*h) + payload;
	if (!payload && skb->gso_size)
		total = p->buffer;
	else if (!payload && h->next == PROTO_HOPBYHOP)
		return refuse(p, DECODE_JUMBO);
	__u8 r = read_ip6(p, h, total);
	if (r)
		return refuse(p, r);
	if (extensions(skb, c, p, scratch))
		return PARSED_IP;
	return load_transport(skb, p, scratch);
}

// parse_slow_ip decodes the IP packet at p->l3. type is that in the link-layer header, 0 without
// one. It is a function of its own so that the verifier does not check it for each number of VLAN
// tags.
__noinline int parse_slow_ip(struct __sk_buff *skb, struct cpu *c, __u32 type)
{
	if (!c)
		return PARSED_OTHER;
	struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;

	p->buffer = skb->len > p->l3 ? skb->len - p->l3 : 0;
	if (!p->buffer && !type)
		return refuse(p, DECODE_LINK);
	if (p->buffer < sizeof(struct ip4) ||
	    bpf_skb_load_bytes(skb, p->l3, scratch->buf, sizeof(struct ip4)) < 0)
		return refuse(p, DECODE_SHORT);
	__u32 version = ip_version(scratch->buf);
	if ((version != 4 && version != 6) || (type == ETH_IP && version != 4) ||
	    (type == ETH_IPV6 && version != 6))
		return refuse(p, DECODE_VERSION);
	return version == 4 ? slow4(skb, p, scratch) : slow6(skb, c, p, scratch);
}

// At the hooks a frame of IP over InfiniBand begins with 20 bytes that the kernel adds: the
// neighbour's address, zeros at ingress (IPOIB_HARD_LEN of drivers/infiniband/ulp/ipoib/ipoib.h).
// The 4 bytes of RFC 4391 section 6 follow, which begin with the protocol. No frame with an
// Ethernet header has its IP header at this offset.
enum { L2_INFINIBAND = 24 };

// parse_slow decodes any frame: VLAN tags, options, extension headers, fragments, headers that are
// truncated or not in one piece.
__noinline int parse_slow(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	if (!c)
		return PARSED_OTHER;
	struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;
	__u32 type = 0, l3 = 0;

	if (l2 == L2_INFINIBAND) {
		if (bpf_skb_load_bytes(skb, L2_INFINIBAND - 4, scratch->buf, 4) < 0)
			return refuse(p, DECODE_LINK);
		type = get16(scratch->buf);
		l3 = L2_INFINIBAND;
	} else if (l2) {
		if (bpf_skb_load_bytes(skb, 0, scratch->buf, 14) < 0)
			return refuse(p, DECODE_LINK);
		type = get16(scratch->buf + 12);
		l3 = 14;
		__u32 tags = skb->vlan_present ? 1 : 0;
		for (int i = 0; i < 3; i++) {
			if (type != 0x8100 && type != 0x88a8 && type != 0x9100)
				break;
			if (tags == 2)
				return refuse(p, DECODE_VLANS);
			if (bpf_skb_load_bytes(skb, l3, scratch->buf, 4) < 0)
				return refuse(p, DECODE_LINK);
			type = get16(scratch->buf + 2);
			l3 += 4;
			tags++;
		}
	}
	p->l3 = l3;
	if (l2) {
		if (type == ETH_ARP)
			return PARSED_ARP;
		if (type != ETH_IP && type != ETH_IPV6)
			return PARSED_OTHER;
	}
	return parse_slow_ip(skb, c, type);
}

// parse decodes the frame. l2 is 14 on an interface with Ethernet headers and 0 on one without.
static __always_inline int parse(struct __sk_buff *skb, struct cpu *c, struct packet *p, __u32 l2)
{
	void *frame = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	const struct ip4 *four = frame + l2;
	const struct ip6 *six = frame + l2;

	if (frame + l2 + sizeof(*four) + 20 > end)
		return parse_slow(skb, c, l2);
	__u16 type = l2 ? ((struct ethernet *)frame)->type : 0;
	p->l3 = l2;
	p->buffer = skb->len - l2;
	if (plain4(four) && (!l2 || type == be16(ETH_IP))) {
		__u32 total = be16(four->len);
		if (total) {
			__u8 r = read_ip4(p, four, total);
			if (r)
				return refuse(p, r);
			return transport(p, four + 1, total - sizeof(*four));
		}
	}
	if (frame + l2 + sizeof(*six) + 20 <= end && ip_version(six) == 6 &&
	    (!l2 || type == be16(ETH_IPV6)) && !is_extension(six->next)) {
		__u32 payload = be16(six->len);
		if (payload) {
			__u8 r = read_ip6(p, six, sizeof(*six) + payload);
			if (r)
				return refuse(p, r);
			return transport(p, six + 1, payload);
		}
	}
	return parse_slow(skb, c, l2);
}
