// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Decoding a frame: a fast path for plain packets in one piece, and a slow path for everything
// else. Section numbers are those of docs/design/0002-decoder.md.
#pragma once

#include "decode.h"

__always_inline int is_extension(__u8 proto)
{
	return proto == PROTO_HOPBYHOP || proto == PROTO_ROUTING || proto == PROTO_FRAGMENT ||
	       proto == PROTO_AH || proto == PROTO_DESTINATION;
}

// load_transport reads up to 20 bytes at p->l4 and ends the decode.
__always_inline int load_transport(struct __sk_buff *skb, struct pkt *p)
{
	__u32 n = p->len - p->l4, want = n < 20 ? n : 20;

	p->left = n;
	opaque(want);
	if (want > 0 && want <= 20 &&
	    bpf_skb_load_bytes(skb, p->l3 + p->l4, p->buf, sized(want, 64)) < 0)
		return refuse(p, DECODE_SHORT);
	return transport(p, p->buf, p->left);
}

// options4 records the IPv4 options, section 4.5.
__always_inline __u8 options4(struct __sk_buff *skb, struct pkt *p)
{
	__u32 n = p->l4 - 20;

	opaque(n);
	if (n == 0 || n > 40)
		return 0;
	if (bpf_skb_load_bytes(skb, p->l3 + 20, p->buf, sized(n, 64)) < 0)
		return DECODE_SHORT;
	p->at = 0;
	p->end = p->l4 - 20;
	for (int i = 0; i < 40; i++) {
		__u32 at = READ_ONCE(p->at), left = READ_ONCE(p->end) - at;
		if (!left || left > 64 || at > 62)
			return 0;
		__u8 kind = p->buf[at & 63];
		if (kind == 0)
			return 0;
		if (kind == 1) {
			WRITE_ONCE(p->at, at + 1);
			continue;
		}
		__u32 len = p->buf[(at + 1) & 63];
		if (left < 2 || len < 2 || len > left)
			return DECODE_IP_OPTION;
		p->ip_options |= kind == 137 ? OPT_SSRR :
				 kind == 131 ? OPT_LSRR :
				 kind == 7   ? OPT_RR :
				 kind == 68  ? OPT_TS :
				 kind == 148 ? OPT_ROUTER_ALERT :
					       0;
		WRITE_ONCE(p->at, at + len);
	}
	return 0;
}

// hop_options records the hop-by-hop options in bytes p->at to p->end of the IP packet, section
// 5.6.5.
__always_inline __u8 hop_options(struct __sk_buff *skb, struct pkt *p)
{
	for (int i = 0; i < MAX_HOP_OPTIONS; i++) {
		__u32 at = READ_ONCE(p->at), left = READ_ONCE(p->end) - at;
		if (!left || left > 4096)
			return 0;
		if (bpf_skb_load_bytes(skb, p->l3 + at, p->buf, 1) < 0)
			return DECODE_EXT_OPTION;
		__u8 kind = p->buf[0];
		if (kind == 0) {
			WRITE_ONCE(p->at, at + 1);
			continue;
		}
		if (left < 2 || bpf_skb_load_bytes(skb, p->l3 + at, p->buf, 2) < 0)
			return DECODE_EXT_OPTION;
		__u32 len = (__u32)p->buf[1] + 2;
		if (len > left)
			return DECODE_EXT_OPTION;
		if (kind == 5)
			p->ip_options |= OPT_ROUTER_ALERT;
		if (kind == 0xc2)
			return DECODE_JUMBO;
		WRITE_ONCE(p->at, at + len);
	}
	return p->at < p->end ? DECODE_EXT_OPTION : 0;
}

// extension_size returns the length of the extension header whose first bytes are in p->buf, 0 when
// the packet ends inside it.
__always_inline __u32 extension_size(__u8 proto, const __u8 *b, __u32 left)
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

// is_jumbo_gso: the first header of an IPv6 packet, whose bytes are in p->buf, is the one that
// holds the length of a GSO packet above 64 KiB (BIG TCP, struct hop_jumbo_hdr). The kernel removes
// it when it makes segments, so rules do not see it.
__always_inline int is_jumbo_gso(struct __sk_buff *skb, struct pkt *p)
{
	return skb->gso_size && p->l4 == 40 && p->len > 40 + 65535 && !p->buf[1] &&
	       p->buf[2] == 0xc2 && p->buf[3] == 4 && get32(p->buf + 4) == p->len - 40;
}

// extensions walks the IPv6 extension headers, section 5.6, and reports whether the decode ends
// here.
__always_inline int extensions(struct __sk_buff *skb, struct pkt *p)
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
		if (left < 8 || bpf_skb_load_bytes(skb, p->l3 + p->l4, p->buf, 8) < 0) {
			stop_short(p, DECODE_EXT_SHORT);
			return 1;
		}
		__u32 size = extension_size(proto, p->buf, left);
		if (!size) {
			stop_short(p, DECODE_EXT_SHORT);
			return 1;
		}
		__u8 next = p->buf[0];
		if (proto == PROTO_HOPBYHOP && is_jumbo_gso(skb, p)) {
			p->jumbo = JUMBO_HEADER;
			p->proto = next;
			p->l4 += JUMBO_HEADER;
			continue;
		}
		if (proto == PROTO_FRAGMENT) {
			__u32 word = get16(p->buf + 2), front = p->l4 - 40;
			p->ext_hdrs |= EXT_FRAGMENT;
			p->ip_id = get32(p->buf + 4);
			p->proto = next;
			p->l4 += 8;
			if ((word & 0xfff8 || word & 1) &&
			    fragment(p, word & 0xfff8, word & 1, left - 8, front))
				return 1;
			continue;
		}
		p->ext_hdrs |= proto == PROTO_HOPBYHOP	  ? EXT_HOPBYHOP :
			       proto == PROTO_AH	  ? EXT_AH :
			       proto == PROTO_DESTINATION ? EXT_DESTINATION :
			       p->buf[2]		  ? EXT_ROUTING :
							    EXT_ROUTING | EXT_ROUTING0;
		if (proto == PROTO_HOPBYHOP) {
			p->at = p->l4 + 2;
			p->end = p->l4 + size;
			p->left = size;
			__u8 r = hop_options(skb, p);
			if (r) {
				stop(p, r);
				return 1;
			}
			size = p->left;
		}
		p->proto = next;
		p->l4 += size;
	}
	return 0;
}

__always_inline int slow4(struct __sk_buff *skb, struct pkt *p)
{
	__u32 total = get16(p->buf + 2);
	if (!total && skb->gso_size) // a GSO packet above 64 KiB has 0
		total = p->buffer;
	__u32 word = get16(p->buf + 6);
	__u8 r = read_ip4(p, p->buf, total);
	if (r)
		return refuse(p, r);
	r = options4(skb, p);
	if (r)
		return stop(p, r);
	if (word & 0x3fff && fragment(p, (word & 0x1fff) * 8, word & 0x2000, p->len - p->l4, p->l4))
		return PARSED_IP;
	return load_transport(skb, p);
}

__always_inline int slow6(struct __sk_buff *skb, struct pkt *p)
{
	if (p->buffer < 40 || bpf_skb_load_bytes(skb, p->l3, p->buf, 40) < 0)
		return refuse(p, DECODE_SHORT);
	__u32 payload = get16(p->buf + 4), total = 40 + payload;
	if (!payload && skb->gso_size)
		total = p->buffer;
	else if (!payload && p->buf[6] == PROTO_HOPBYHOP)
		return refuse(p, DECODE_JUMBO);
	__u8 r = read_ip6(p, p->buf, total);
	if (r)
		return refuse(p, r);
	if (extensions(skb, p))
		return PARSED_IP;
	return load_transport(skb, p);
}

// parse_slow_ip decodes the IP packet at p->l3 of a frame of this type, 0 if nothing said one. It
// is a function of its own so that the verifier does not check it for each number of VLAN tags.
__noinline int parse_slow_ip(struct __sk_buff *skb, __u32 type)
{
	struct cpu *c = this_cpu();
	if (!c)
		return PARSED_OTHER;
	struct pkt *p = &c->p;

	p->buffer = skb->len > p->l3 ? skb->len - p->l3 : 0;
	if (!p->buffer && !type)
		return refuse(p, DECODE_LINK);
	if (p->buffer < 20 || bpf_skb_load_bytes(skb, p->l3, p->buf, 20) < 0)
		return refuse(p, DECODE_SHORT);
	__u32 version = p->buf[0] >> 4;
	if ((version != 4 && version != 6) || (type == ETH_IP && version != 4) ||
	    (type == ETH_IPV6 && version != 6))
		return refuse(p, DECODE_VERSION);
	return version == 4 ? slow4(skb, p) : slow6(skb, p);
}

// Between the hooks and IP over InfiniBand the kernel puts the 20 bytes of the neighbour's address,
// of zeros at ingress, before the 4 of RFC 4391 section 6, which begin with the protocol:
// IPOIB_HARD_LEN of drivers/infiniband/ulp/ipoib/ipoib.h. No frame with an Ethernet header has IP
// there.
enum { L2_INFINIBAND = 24 };

// parse_slow decodes any frame: VLAN tags, options, extension headers, fragments, headers that are
// cut or not in one piece.
__noinline int parse_slow(struct __sk_buff *skb, __u32 l2)
{
	struct cpu *c = this_cpu();
	if (!c)
		return PARSED_OTHER;
	struct pkt *p = &c->p;
	__u32 type = 0, l3 = 0;

	if (l2 == L2_INFINIBAND) {
		if (bpf_skb_load_bytes(skb, L2_INFINIBAND - 4, p->buf, 4) < 0)
			return refuse(p, DECODE_LINK);
		type = get16(p->buf);
		l3 = L2_INFINIBAND;
	} else if (l2) {
		if (bpf_skb_load_bytes(skb, 0, p->buf, 14) < 0)
			return refuse(p, DECODE_LINK);
		type = get16(p->buf + 12);
		l3 = 14;
		__u32 tags = skb->vlan_present ? 1 : 0;
		for (int i = 0; i < 3; i++) {
			if (type != 0x8100 && type != 0x88a8 && type != 0x9100)
				break;
			if (tags == 2)
				return refuse(p, DECODE_VLANS);
			if (bpf_skb_load_bytes(skb, l3, p->buf, 4) < 0)
				return refuse(p, DECODE_LINK);
			type = get16(p->buf + 2);
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
	return parse_slow_ip(skb, type);
}

// parse decodes the frame. l2 is 14 on an interface with Ethernet headers and 0 on one without.
__always_inline int parse(struct __sk_buff *skb, struct pkt *p, __u32 l2)
{
	__u8 *b = (__u8 *)(long)skb->data, *end = (__u8 *)(long)skb->data_end;

	if (b + l2 + 40 <= end) {
		__u16 type = l2 ? *(__u16 *)(b + 12) : 0;
		p->l3 = l2;
		p->buffer = skb->len - l2;
		if (b[l2] == 0x45 && (!l2 || type == be16(ETH_IP)) &&
		    !(*(__u16 *)(b + l2 + 6) & be16(0x3fff))) {
			__u32 total = get16(b + l2 + 2);
			if (total) {
				__u8 r = read_ip4(p, b + l2, total);
				if (r)
					return refuse(p, r);
				return transport(p, b + l2 + 20, total - 20);
			}
		}
		if (b + l2 + 60 <= end && b[l2] >> 4 == 6 && (!l2 || type == be16(ETH_IPV6)) &&
		    !is_extension(b[l2 + 6])) {
			__u32 payload = get16(b + l2 + 4);
			if (payload) {
				__u8 r = read_ip6(p, b + l2, 40 + payload);
				if (r)
					return refuse(p, r);
				return transport(p, b + l2 + 40, payload);
			}
		}
	}
	return parse_slow(skb, l2);
}
